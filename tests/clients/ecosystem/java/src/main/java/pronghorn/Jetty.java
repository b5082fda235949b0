package pronghorn;

import java.io.ByteArrayInputStream;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.client.BytesRequestContent;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.client.InputStreamRequestContent;
import org.eclipse.jetty.client.InputStreamResponseListener;
import org.eclipse.jetty.client.Request;
import org.eclipse.jetty.client.Response;
import org.eclipse.jetty.client.transport.HttpClientConnectionFactory;
import org.eclipse.jetty.client.transport.HttpClientTransportDynamic;
import org.eclipse.jetty.http.HttpVersion;
import org.eclipse.jetty.http2.client.HTTP2Client;
import org.eclipse.jetty.http2.client.transport.ClientConnectionFactoryOverHTTP2;
import org.eclipse.jetty.io.ClientConnector;
import org.eclipse.jetty.util.ssl.SslContextFactory;

/** Jetty's client, set up for both protocols as in its documentation. */
final class Jetty implements Library {
    private final HttpClient client;

    Jetty(boolean http2, Main.Trust trust) throws Exception {
        SslContextFactory.Client tls = new SslContextFactory.Client();
        tls.setSslContext(trust.context);
        ClientConnector connector = new ClientConnector();
        connector.setSslContextFactory(tls);
        client = new HttpClient(
                http2
                        ? new HttpClientTransportDynamic(
                                connector,
                                new ClientConnectionFactoryOverHTTP2.HTTP2(new HTTP2Client(connector)),
                                HttpClientConnectionFactory.HTTP11)
                        : new HttpClientTransportDynamic(connector, HttpClientConnectionFactory.HTTP11));
        client.start();
    }

    @Override
    public Answer send(String method, String url, Content content) throws Exception {
        Request request = client.newRequest(url).method(method);
        if (content != null) {
            request.body(
                    content.known()
                            ? new BytesRequestContent(content.bytes())
                            : new InputStreamRequestContent(new ByteArrayInputStream(content.bytes())));
        }
        InputStreamResponseListener listener = new InputStreamResponseListener();
        request.send(listener);
        Response response = listener.get(60, TimeUnit.SECONDS);
        String protocol = response.getVersion() == HttpVersion.HTTP_2 ? "HTTP/2" : "HTTP/1.1";
        return new Answer(
                response.getStatus(),
                protocol,
                listener.getInputStream(),
                () -> request.abort(new InterruptedException("cancelled")));
    }
}
