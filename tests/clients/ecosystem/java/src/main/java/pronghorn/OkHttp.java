package pronghorn;

import java.util.List;
import okhttp3.Call;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okio.BufferedSink;

/** OkHttp, the usual client on Android. */
final class OkHttp implements Library {
    private final OkHttpClient client;

    OkHttp(boolean http2, Main.Trust trust) {
        List<Protocol> protocols = http2 ? List.of(Protocol.HTTP_2, Protocol.HTTP_1_1) : List.of(Protocol.HTTP_1_1);
        client = new OkHttpClient.Builder()
                .sslSocketFactory(trust.context.getSocketFactory(), trust.manager)
                .protocols(protocols)
                .build();
    }

    @Override
    public Answer send(String method, String url, Content content) throws Exception {
        Call call = client.newCall(new Request.Builder().url(url).method(method, body(content)).build());
        Response response = call.execute();
        String protocol = response.protocol() == Protocol.HTTP_2 ? "HTTP/2" : "HTTP/1.1";
        return new Answer(response.code(), protocol, response.body().byteStream(), call::cancel);
    }

    private static RequestBody body(Content content) {
        if (content == null) {
            return null;
        }
        MediaType type = MediaType.get("application/octet-stream");
        return content.known()
                ? RequestBody.create(content.bytes(), type)
                : new RequestBody() {
                    @Override
                    public MediaType contentType() {
                        return type;
                    }

                    @Override
                    public void writeTo(BufferedSink sink) throws java.io.IOException {
                        sink.write(content.bytes());
                    }
                };
    }
}
