package pronghorn;

import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntConsumer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import pronghorn.Library.Answer;
import pronghorn.Library.Content;

/** Runs a scenario of tests/e2e/test_ecosystem.py: CLIENT PROTOCOL SCENARIO ORIGIN CA FILE TAG. */
public final class Main {
    private static final int MIB = 1 << 20;
    private static final int CANCELLED = 4;
    private static final int BYSTANDERS = 3;

    private final Library library;
    private final String origin;
    private final String tag;
    private final byte[] content;

    private Main(Library library, String origin, String tag, byte[] content) {
        this.library = library;
        this.origin = origin;
        this.tag = tag;
        this.content = content;
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 7) {
            System.err.println("usage: CLIENT PROTOCOL SCENARIO ORIGIN CA FILE TAG");
            System.exit(2);
        }
        // Clients leave threads running, so the exit is explicit.
        try {
            Library library = library(args[0], args[1].equals("2"), new Trust(Path.of(args[4])));
            Main main = new Main(library, args[3], args[6], Files.readAllBytes(Path.of(args[5])));
            System.out.println("{\"answers\":[" + String.join(",", main.run(args[2])) + "]}");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static Library library(String name, boolean http2, Trust trust) throws Exception {
        return switch (name) {
            case "okhttp" -> new OkHttp(http2, trust);
            case "jetty" -> new Jetty(http2, trust);
            case "apache" -> new Apache(http2, trust);
            case "jdk" -> new Jdk(http2, trust);
            default -> throw new IllegalArgumentException("unknown client " + name);
        };
    }

    /** The certificate authority of the tests, in the forms that the libraries need. */
    static final class Trust {
        final SSLContext context;
        final X509TrustManager manager;

        Trust(Path ca) throws Exception {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            try (InputStream file = new FileInputStream(ca.toFile())) {
                store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
            }
            TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init(store);
            manager = (X509TrustManager) factory.getTrustManagers()[0];
            context = SSLContext.getInstance("TLS");
            context.init(null, factory.getTrustManagers(), null);
        }
    }

    private List<String> run(String scenario) throws Exception {
        if (scenario.startsWith("idle-")) {
            return idle(Long.parseLong(scenario.substring("idle-".length())));
        }
        return switch (scenario) {
            case "small" -> List.of(get("/small.txt"), get("/small.txt"));
            case "download" -> List.of(get("/large.bin"));
            case "upload" -> List.of(post("/upload", true));
            case "stream" -> List.of(post("/upload", false));
            case "refused" -> List.of(post("/forbidden", false), get("/small.txt"));
            case "cancel" -> cancel();
            case "shutdown" -> shutdown();
            default -> throw new IllegalArgumentException("unknown scenario " + scenario);
        };
    }

    private Answer send(String method, String path, Content sent) throws Exception {
        return library.send(method, origin + path + "?" + tag, sent);
    }

    private String get(String path) throws Exception {
        return finish(send("GET", path, null), size -> {});
    }

    private String post(String path, boolean known) throws Exception {
        return finish(send("POST", path, new Content(content, known)), size -> {});
    }

    /** Reads a response to its end; `onPiece` gets the size so far. */
    private static String finish(Answer answer, IntConsumer onPiece) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        StringBuilder text = new StringBuilder();
        byte[] piece = new byte[65536];
        int size = 0;
        try (InputStream in = answer.content()) {
            for (int count; (count = in.read(piece)) >= 0; ) {
                digest.update(piece, 0, count);
                size += count;
                if (size < 1000) {
                    text.append(new String(piece, 0, count, StandardCharsets.ISO_8859_1));
                }
                onPiece.accept(size);
            }
        }
        String quoted = size < 1000 ? text.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\r", "") : "";
        return String.format(
                "{\"status\":%d,\"protocol\":\"%s\",\"bytes\":%d,\"sha256\":\"%s\",\"text\":\"%s\"}",
                answer.status(), answer.protocol(), size, HexFormat.of().formatHex(digest.digest()), quoted);
    }

    /** The bystanders read slowly until the other downloads are cancelled, so that they are still in progress. */
    private List<String> cancel() throws Exception {
        List<String> answers = new ArrayList<>();
        // A connection that all can share.
        answers.add(get("/small.txt"));
        ExecutorService threads = Executors.newCachedThreadPool();
        CountDownLatch started = new CountDownLatch(BYSTANDERS);
        CountDownLatch cancelled = new CountDownLatch(1);
        List<Future<String>> bystanders = new ArrayList<>();
        for (int i = 0; i < BYSTANDERS; i++) {
            bystanders.add(threads.submit(() -> {
                try {
                    int[] pausedAt = {-1};
                    return finish(send("GET", "/large.bin", null), size -> {
                        if (pausedAt[0] < 0) {
                            started.countDown();
                        }
                        if (cancelled.getCount() > 0 && size / MIB > pausedAt[0]) {
                            pausedAt[0] = size / MIB;
                            rest(10);
                        }
                    });
                } finally {
                    started.countDown();
                }
            }));
        }
        started.await();
        List<Future<?>> cancels = new ArrayList<>();
        for (int i = 0; i < CANCELLED; i++) {
            cancels.add(threads.submit(() -> {
                Answer answer = send("GET", "/large.bin", null);
                answer.content().readNBytes(65536);
                answer.cancel().now();
                return null;
            }));
        }
        for (Future<?> each : cancels) {
            each.get();
        }
        cancelled.countDown();
        for (Future<String> each : bystanders) {
            answers.add(each.get());
        }
        answers.add(get("/small.txt"));
        return answers;
    }

    private List<String> idle(long seconds) throws Exception {
        String first = get("/small.txt");
        rest(1000 * seconds);
        return List.of(first, get("/small.txt"));
    }

    /** Reads the first bytes, reports it, and continues when told to. */
    private List<String> shutdown() throws Exception {
        boolean[] told = {false};
        return List.of(finish(send("GET", "/large.bin", null), size -> {
            if (!told[0]) {
                told[0] = true;
                System.out.println("reading");
                readLine();
            }
        }));
    }

    private static void rest(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void readLine() {
        try {
            while (System.in.read() != '\n') {}
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
