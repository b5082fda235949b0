package pronghorn;

import com.google.protobuf.StringValue;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.CallOptions;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Runs a scenario of tests/e2e/test_rpc_clients.py with grpc-java: SCENARIO ORIGIN CA. */
public final class Rpc {
    private static final int LARGE = 3 << 20;
    private static final int CANCELLED = 4;
    private static final int BYSTANDERS = 3;
    private static final byte[] TOKEN_BYTES = {0, (byte) 0xff, 0x10};

    private final Channel channel;
    private final CallOptions patient = CallOptions.DEFAULT.withDeadlineAfter(1, TimeUnit.MINUTES);

    private Rpc(Channel channel) {
        this.channel = channel;
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: SCENARIO ORIGIN CA");
            System.exit(2);
        }
        // The channel leaves threads running, so the exit is explicit.
        try {
            var trust = TlsChannelCredentials.newBuilder().trustManager(new File(args[2])).build();
            ManagedChannel channel =
                    Grpc.newChannelBuilder(args[1].replace("https://", ""), trust).build();
            List<Outcome> outcomes = new Rpc(channel).run(args[0]);
            String calls = outcomes.stream().map(Outcome::json).collect(Collectors.joining(","));
            System.out.println("{\"calls\":[" + calls + "]}");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private List<Outcome> run(String scenario) throws Exception {
        return switch (scenario) {
            case "unary" -> List.of(unary("Double", "21"), unary("Double", "50"));
            case "large" -> List.of(unary("Echo", "x".repeat(LARGE)));
            case "count" -> List.of(count("5000"));
            case "refused" -> List.of(unary("Double", "no"), unary("Double", "21"));
            case "broken" -> List.of(count("-3"), unary("Double", "21"));
            case "sum" -> sum();
            case "sums" -> sums();
            case "deadline" -> deadline();
            case "cancel" -> cancel();
            default -> throw new IllegalArgumentException("unknown scenario " + scenario);
        };
    }

    private static MethodDescriptor<StringValue, StringValue> method(MethodType type, String name) {
        return MethodDescriptor.<StringValue, StringValue>newBuilder()
                .setType(type)
                .setFullMethodName("pronghorn.test.Counter/" + name)
                .setRequestMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
                .setResponseMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
                .build();
    }

    private static Metadata.Key<String> text(String name) {
        return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
    }

    private static Metadata.Key<byte[]> binary(String name) {
        return Metadata.Key.of(name + "-bin", Metadata.BINARY_BYTE_MARSHALLER);
    }

    /** The metadata of one call: what is sent, and what comes. */
    private final class Received {
        final AtomicReference<Metadata> headers = new AtomicReference<>();
        final AtomicReference<Metadata> trailers = new AtomicReference<>();

        Channel channel() {
            Metadata sent = new Metadata();
            sent.put(text("x-token"), "a token");
            sent.put(binary("x-token"), TOKEN_BYTES);
            return ClientInterceptors.intercept(
                    channel,
                    MetadataUtils.newCaptureMetadataInterceptor(headers, trailers),
                    MetadataUtils.newAttachHeadersInterceptor(sent));
        }

        Outcome outcome(List<String> messages, Throwable error) {
            if (error == null) {
                byte[] echoed = trailers.get().get(binary("x-echo"));
                return new Outcome(
                        messages, 0, "", List.of(), headers.get().get(text("x-echo")), echoed, null, null);
            }
            Status status = Status.fromThrowable(error);
            Metadata found = Status.trailersFromThrowable(error);
            List<String> details = new ArrayList<>();
            com.google.rpc.Status detailed = StatusProto.fromThrowable(error);
            if (detailed != null) {
                for (var each : detailed.getDetailsList()) {
                    try {
                        details.add(each.unpack(StringValue.class).getValue());
                    } catch (com.google.protobuf.InvalidProtocolBufferException wrong) {
                        throw new IllegalStateException(wrong);
                    }
                }
            }
            return new Outcome(
                    messages,
                    status.getCode().value(),
                    status.getDescription(),
                    details,
                    null,
                    null,
                    found == null ? null : found.get(text("x-detail")),
                    found == null ? null : found.get(binary("x-detail")));
        }
    }

    private Outcome unary(String name, String message) {
        Received received = new Received();
        List<String> messages = new ArrayList<>();
        try {
            messages.add(ClientCalls.blockingUnaryCall(
                            received.channel(), method(MethodType.UNARY, name), patient, StringValue.of(message))
                    .getValue());
            return received.outcome(messages, null);
        } catch (io.grpc.StatusRuntimeException error) {
            return received.outcome(messages, error);
        }
    }

    private Outcome count(String number) {
        return serverStream("Count", number, patient, () -> {});
    }

    /** Reads all messages; `onFirst` runs after the first one. */
    private Outcome serverStream(String name, String message, CallOptions options, Runnable onFirst) {
        Received received = new Received();
        List<String> messages = new ArrayList<>();
        try {
            Iterator<StringValue> answers = ClientCalls.blockingServerStreamingCall(
                    received.channel(), method(MethodType.SERVER_STREAMING, name), options, StringValue.of(message));
            while (answers.hasNext()) {
                messages.add(answers.next().getValue());
                if (messages.size() == 1) {
                    onFirst.run();
                }
            }
            return received.outcome(messages, null);
        } catch (io.grpc.StatusRuntimeException error) {
            return received.outcome(messages, error);
        }
    }

    /** A call with a stream of requests. */
    private final class Conversation implements StreamObserver<StringValue> {
        private final Received received = new Received();
        private final List<String> messages = new ArrayList<>();
        private final StreamObserver<StringValue> requests;
        /** A message, an error, or this object at the end. */
        private final BlockingQueue<Object> events = new LinkedBlockingQueue<>();

        Conversation(MethodType type, String name) {
            var call = received.channel().newCall(method(type, name), patient);
            requests = type == MethodType.CLIENT_STREAMING
                    ? ClientCalls.asyncClientStreamingCall(call, this)
                    : ClientCalls.asyncBidiStreamingCall(call, this);
        }

        @Override
        public void onNext(StringValue message) {
            events.add(message);
        }

        @Override
        public void onError(Throwable error) {
            events.add(error);
        }

        @Override
        public void onCompleted() {
            events.add(this);
        }

        void send(int number) {
            requests.onNext(StringValue.of(Integer.toString(number)));
        }

        void exchange(int number) throws Exception {
            send(number);
            if (!(events.take() instanceof StringValue answer)) {
                throw new IllegalStateException("the call ended early");
            }
            messages.add(answer.getValue());
        }

        Outcome end() throws Exception {
            requests.onCompleted();
            for (; ; ) {
                Object event = events.take();
                if (event instanceof StringValue answer) {
                    messages.add(answer.getValue());
                } else {
                    return received.outcome(messages, event instanceof Throwable error ? error : null);
                }
            }
        }
    }

    private List<Outcome> sum() throws Exception {
        Conversation call = new Conversation(MethodType.CLIENT_STREAMING, "Sum");
        IntStream.rangeClosed(1, 1000).forEach(call::send);
        return List.of(call.end());
    }

    private List<Outcome> sums() throws Exception {
        Conversation call = new Conversation(MethodType.BIDI_STREAMING, "Sums");
        for (int i = 1; i <= 100; i++) {
            call.exchange(i);
        }
        return List.of(call.end());
    }

    private List<Outcome> deadline() {
        Outcome remaining = unary("Remaining", "");
        CallOptions soon = CallOptions.DEFAULT.withDeadlineAfter(1, TimeUnit.SECONDS);
        Outcome wait = serverStream("Wait", "deadline", soon, () -> {});
        return List.of(remaining, wait, unary("Double", "21"));
    }

    /** Ends calls early while bystanders on the same connection continue. */
    private List<Outcome> cancel() throws Exception {
        List<Outcome> outcomes = new ArrayList<>();
        // A connection that all can share.
        outcomes.add(unary("Double", "21"));
        List<Conversation> bystanders = new ArrayList<>();
        for (int i = 0; i < BYSTANDERS; i++) {
            Conversation bystander = new Conversation(MethodType.BIDI_STREAMING, "Sums");
            bystander.exchange(1);
            bystanders.add(bystander);
        }
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Callable<List<Outcome>>> cancels = new ArrayList<>();
        for (int i = 0; i < CANCELLED; i++) {
            String id = "cancelled " + i;
            cancels.add(() -> List.of(cancelOne(id), unary("Ended", id)));
        }
        List<Outcome> seen = new ArrayList<>();
        for (Future<List<Outcome>> each : threads.invokeAll(cancels)) {
            outcomes.add(each.get().get(0));
            seen.add(each.get().get(1));
        }
        outcomes.addAll(seen);
        for (Conversation bystander : bystanders) {
            for (int i = 0; i < 10; i++) {
                bystander.exchange(i);
            }
        }
        for (Conversation bystander : bystanders) {
            outcomes.add(bystander.end());
        }
        outcomes.add(unary("Double", "50"));
        return outcomes;
    }

    private Outcome cancelOne(String id) throws Exception {
        Context.CancellableContext context = Context.current().withCancellation();
        return context.call(() -> serverStream("Wait", id, patient, () -> context.cancel(null)));
    }

    /** One call as the test compares it; null stands for absent metadata. */
    private record Outcome(
            List<String> messages,
            int code,
            String message,
            List<String> details,
            String header,
            byte[] trailer,
            String detail,
            byte[] detailBytes) {

        String json() {
            return String.format(
                    "{\"messages\":%s,\"code\":%d,\"message\":%s,\"details\":%s,\"header\":%s,\"trailer\":%s,\"detail\":%s,\"detail-bytes\":%s}",
                    list(messages.stream().map(Outcome::brief).toList()),
                    code,
                    quoted(message),
                    list(details),
                    quoted(header),
                    quoted(hex(trailer)),
                    quoted(detail),
                    quoted(hex(detailBytes)));
        }

        private static String list(List<String> values) {
            return values.stream().map(Outcome::quoted).collect(Collectors.joining(",", "[", "]"));
        }

        private static String hex(byte[] bytes) {
            return bytes == null ? null : HexFormat.of().formatHex(bytes);
        }

        private static String quoted(String value) {
            StringBuilder text = new StringBuilder("\"");
            for (char each : (value == null ? "" : value).toCharArray()) {
                boolean plain = each >= ' ' && each < 127 && each != '"' && each != '\\';
                text.append(plain ? Character.toString(each) : String.format("\\u%04x", (int) each));
            }
            return text.append('"').toString();
        }

        /** Replaces a long message by its hash. */
        private static String brief(String message) {
            if (message.length() < 1000) {
                return message;
            }
            try {
                byte[] bytes = message.getBytes(StandardCharsets.UTF_8);
                return hex(MessageDigest.getInstance("SHA-256").digest(bytes));
            } catch (java.security.NoSuchAlgorithmException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
