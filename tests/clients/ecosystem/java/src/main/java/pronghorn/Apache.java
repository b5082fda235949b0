package pronghorn;

import java.io.ByteArrayInputStream;
import org.apache.hc.client5.http.classic.methods.HttpUriRequestBase;
import org.apache.hc.client5.http.config.TlsConfig;
import org.apache.hc.client5.http.impl.async.CloseableHttpAsyncClient;
import org.apache.hc.client5.http.impl.async.HttpAsyncClients;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.nio.PoolingAsyncClientConnectionManagerBuilder;
import org.apache.hc.client5.http.ssl.ClientTlsStrategyBuilder;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.HttpEntity;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.http.io.entity.InputStreamEntity;
import org.apache.hc.core5.http2.HttpVersionPolicy;
import org.apache.hc.core5.util.Timeout;

/** Apache HttpClient 5: the asynchronous client, which supports both protocols, through its classic API. */
final class Apache implements Library {
    private final CloseableHttpClient client;

    Apache(boolean http2, Main.Trust trust) {
        HttpVersionPolicy policy = http2 ? HttpVersionPolicy.NEGOTIATE : HttpVersionPolicy.FORCE_HTTP_1;
        CloseableHttpAsyncClient running = HttpAsyncClients.custom()
                .setConnectionManager(PoolingAsyncClientConnectionManagerBuilder.create()
                        .setTlsStrategy(ClientTlsStrategyBuilder.create()
                                .setSslContext(trust.context)
                                .build())
                        .setDefaultTlsConfig(TlsConfig.custom().setVersionPolicy(policy).build())
                        .setMessageMultiplexing(true)
                        .setMaxConnPerRoute(20)
                        .build())
                .build();
        running.start();
        client = HttpAsyncClients.classic(running, Timeout.ofMinutes(1));
    }

    @Override
    public Answer send(String method, String url, Content content) throws Exception {
        HttpUriRequestBase request = new HttpUriRequestBase(method, java.net.URI.create(url));
        if (content != null) {
            request.setEntity(entity(content));
        }
        ClassicHttpResponse response = client.executeOpen(null, request, null);
        String protocol = response.getVersion() == null ? "HTTP/1.1" : response.getVersion().toString();
        return new Answer(
                response.getCode(), protocol, response.getEntity().getContent(), () -> {
                    request.cancel();
                    try {
                        response.close();
                    } catch (java.io.IOException expected) {
                        // Reports that the response was cancelled.
                    }
                });
    }

    private static HttpEntity entity(Content content) {
        ContentType type = ContentType.APPLICATION_OCTET_STREAM;
        return content.known()
                ? new ByteArrayEntity(content.bytes(), type)
                : new InputStreamEntity(new ByteArrayInputStream(content.bytes()), type);
    }
}
