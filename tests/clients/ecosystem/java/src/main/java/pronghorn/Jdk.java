package pronghorn;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;

/** `java.net.http` of the JDK. */
final class Jdk implements Library {
    private final HttpClient client;

    Jdk(boolean http2, Main.Trust trust) {
        client = HttpClient.newBuilder()
                .version(http2 ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1)
                .sslContext(trust.context)
                .build();
    }

    @Override
    public Answer send(String method, String url, Content content) throws Exception {
        HttpRequest request =
                HttpRequest.newBuilder(URI.create(url)).method(method, publisher(content)).build();
        HttpResponse<InputStream> response = client.send(request, BodyHandlers.ofInputStream());
        String protocol = response.version() == HttpClient.Version.HTTP_2 ? "HTTP/2" : "HTTP/1.1";
        return new Answer(response.statusCode(), protocol, response.body(), () -> response.body().close());
    }

    private static BodyPublisher publisher(Content content) {
        if (content == null) {
            return BodyPublishers.noBody();
        }
        return content.known()
                ? BodyPublishers.ofByteArray(content.bytes())
                : BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(content.bytes()));
    }
}
