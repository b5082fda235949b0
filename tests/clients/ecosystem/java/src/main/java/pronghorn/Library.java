package pronghorn;

import java.io.InputStream;

/** An HTTP client library. */
interface Library {
    /** Sends a request and returns when the head of its response is there. */
    Answer send(String method, String url, Content content) throws Exception;

    /** Content of a request; `known` says whether the client is told its length. */
    record Content(byte[] bytes, boolean known) {}

    /** A response whose content has not been read yet. */
    record Answer(int status, String protocol, InputStream content, Cancel cancel) {}

    /** Ends a response early. */
    interface Cancel {
        void now() throws Exception;
    }
}
