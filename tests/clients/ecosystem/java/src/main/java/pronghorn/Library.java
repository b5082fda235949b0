package pronghorn;

import java.io.InputStream;

/** An HTTP client library. */
interface Library {
    /** Sends a request and returns when the response head has arrived. */
    Answer send(String method, String url, Content content) throws Exception;

    /** Content of a request; `known`: whether the client knows its length. */
    record Content(byte[] bytes, boolean known) {}

    /** A response whose content has not been read. */
    record Answer(int status, String protocol, InputStream content, Cancel cancel) {}

    /** Ends a response early. */
    interface Cancel {
        void now() throws Exception;
    }
}
