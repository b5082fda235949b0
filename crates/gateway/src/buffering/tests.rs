//! Buffers polled by hand: the client's end, and the upstream's end as its task polls it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use proptest::prelude::*;

use super::memory::BLOCK_BYTES;
use super::*;
use crate::config::Size;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a server sends: pieces, and the end.
#[derive(Clone, Default)]
struct Server(Rc<Sent>);

#[derive(Default)]
struct Sent {
    pieces: RefCell<VecDeque<Result<Frame<Bytes>, BodyError>>>,
    is_over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    is_dropped: Cell<bool>,
}

impl Server {
    fn send(&self, bytes: &[u8]) {
        self.push(Ok(Frame::data(Bytes::copy_from_slice(bytes))));
    }

    fn push(&self, frame: Result<Frame<Bytes>, BodyError>) {
        self.0.pieces.borrow_mut().push_back(frame);
        self.wake();
    }

    fn end(&self) {
        self.0.is_over.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }

    fn has_to_wait(&self) -> bool {
        !self.0.pieces.borrow().is_empty()
    }
}

struct Content(Server);

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let sent = &self.0.0;
        match sent.pieces.borrow_mut().pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None if sent.is_over.get() => Poll::Ready(None),
            None => {
                *sent.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.0.0.is_dropped.set(true);
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Case {
    server: Server,
    buffer: Rc<RefCell<Buffer<Content>>>,
    client: Option<Buffered<Content>>,
    buffers: Arc<Buffers>,
    lines: Rc<RefCell<Vec<String>>>,
    filler: Arc<Woken>,
    reader: Arc<Woken>,
    folder: tempfile::TempDir,
}

/// `memory` and `disk` are limits of one response, in bytes.
fn case(memory: u64, disk: u64) -> Case {
    case_of(memory, disk, &Arc::default())
}

fn case_of(memory: u64, disk: u64, buffers: &Arc<Buffers>) -> Case {
    let folder = tempfile::tempdir().expect("a folder");
    *buffers.folder.lock().expect("nobody panicked") = folder.path().into();
    let lines = Rc::<RefCell<Vec<String>>>::default();
    let told = lines.clone();
    let tell = Box::new(move |line| {
        told.borrow_mut().push(line);
        true
    });
    let most = BufferingTable { memory: Size(memory), disk: Size(disk) };
    let context = Rc::new(BufferContext { most, buffers: buffers.clone(), tell });
    let server = Server::default();
    let buffer = Rc::new(RefCell::new(Buffer::new(context, Content(server.clone()))));
    let client = Some(Buffered(buffer.clone()));
    let (filler, reader) = Default::default();
    Case { server, buffer, client, buffers: buffers.clone(), lines, filler, reader, folder }
}

impl Case {
    /// Runs the task until it makes no more progress. Returns whether it is done.
    fn fill(&self) -> bool {
        loop {
            let before = self.filler.0.load(Ordering::Relaxed);
            let waker = Waker::from(self.filler.clone());
            if self
                .buffer
                .borrow_mut()
                .poll_fill_as_task(&mut Context::from_waker(&waker))
                .is_ready()
            {
                return true;
            }
            // Other threads wake the task after a write.
            let is_writing = self.buffer.borrow().disk.is_writing();
            while is_writing && self.filler.0.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            if self.filler.0.load(Ordering::Relaxed) == before {
                return false;
            }
        }
    }

    /// Returns the next frame for the client, if any. Waits for the disk.
    fn read(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let waker = Waker::from(self.reader.clone());
        loop {
            let before = self.reader.0.load(Ordering::Relaxed);
            let frame = http_body::Body::poll_frame(
                Pin::new(self.client.as_mut().expect("it has not gone")),
                &mut Context::from_waker(&waker),
            );
            let is_reading = frame.is_pending() && !self.buffer.borrow().disk.is_empty();
            if !is_reading {
                return frame;
            }
            while self.reader.0.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
        }
    }

    fn read_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.fill();
        while let Poll::Ready(Some(frame)) = self.read() {
            all.extend_from_slice(
                &frame.expect("it does not break off").into_data().expect("data"),
            );
            self.fill();
        }
        all
    }

    fn held(&self) -> [u64; 2] {
        self.buffers.held()
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|number| (number % 251) as u8).collect()
}

#[test]
fn server_is_free_before_the_client_has_read_a_byte() {
    let mut case = case(2 * BLOCK, 1 << 20);
    let content = pattern(500_000);
    content.chunks(10_000).for_each(|piece| case.server.send(piece));
    case.server.end();
    assert!(case.fill(), "all data was buffered");
    assert!(case.server.0.is_dropped.get(), "the exchange has ended");
    let [memory, disk] = case.held();
    assert!(memory == 2 * BLOCK && disk > 400_000, "{memory} {disk}");
    assert!(case.read_all() == content);
    assert!(http_body::Body::is_end_stream(case.client.as_ref().expect("it is there")));
    assert_eq!(case.held(), [0, 0]);
    assert_eq!(
        std::fs::read_dir(case.folder.path()).expect("a folder").count(),
        0,
        "its file has no name"
    );
}

#[test]
fn client_gets_each_piece_at_once_and_uncopied() {
    let mut case = case(1 << 20, 1 << 20);
    case.fill();
    for number in 0..3_u8 {
        assert!(case.read().is_pending());
        let piece = Bytes::from(vec![number; 5]);
        let place = piece.as_ptr();
        case.server.push(Ok(Frame::data(piece)));
        let before = case.reader.0.load(Ordering::Relaxed);
        let waker = Waker::from(case.filler.clone());
        assert!(
            case.buffer
                .borrow_mut()
                .poll_fill_as_task(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(case.reader.0.load(Ordering::Relaxed), before + 1, "the client is woken");
        let Poll::Ready(Some(Ok(frame))) = case.read() else { panic!("data is available") };
        assert_eq!(frame.into_data().expect("data").as_ptr(), place);
    }
    assert_eq!(case.held(), [0, 0]);
}

#[test]
fn client_that_was_told_and_does_not_come_keeps_nobody() {
    let mut case = case(1 << 20, 0);
    case.fill();
    assert!(case.read().is_pending());
    (0..10).for_each(|_| case.server.send(&[1; 1000]));
    case.server.end();
    assert!(case.fill(), "the woken client may not have read");
    assert_eq!(case.read_all().len(), 10_000);
}

#[test]
fn server_is_held_back_when_there_is_room_nowhere() {
    let mut case = case(2 * BLOCK, 50_000);
    let content = pattern(300_000);
    content.chunks(10_000).for_each(|piece| case.server.send(piece));
    assert!(!case.fill());
    assert!(case.server.has_to_wait());
    let [memory, disk] = case.held();
    assert!(memory <= 2 * BLOCK && disk <= 50_000, "{memory} {disk}");
    let waiting = case.server.0.pieces.borrow().len();
    let Poll::Ready(Some(Ok(frame))) = case.read() else { panic!("data is available") };
    let mut all = frame.into_data().expect("data").to_vec();
    all.extend(case.read_all());
    assert!(all == content, "the transfer continues");
    assert!(waiting > 0 && !case.server.has_to_wait());
}

#[test]
fn all_responses_have_bounds_together() {
    let buffers = Arc::<Buffers>::default();
    buffers.memory.set(BLOCK);
    buffers.disk.set(30_000);
    let mut cases = [case_of(1 << 20, 1 << 20, &buffers), case_of(1 << 20, 1 << 20, &buffers)];
    for case in &cases {
        pattern(100_000).chunks(7_000).for_each(|piece| case.server.send(piece));
        case.server.end();
        assert!(!case.fill());
        let [memory, disk] = case.held();
        assert!(memory <= BLOCK && disk <= 30_000, "{memory} {disk}");
    }
    for case in &mut cases {
        assert!(case.read_all() == pattern(100_000), "data beyond the limits is streamed");
    }
    assert_eq!(buffers.held(), [0, 0]);
}

#[test]
fn folder_that_cannot_be_written_is_one_line_and_no_broken_response() {
    let buffers = Arc::<Buffers>::default();
    let mut cases = [case_of(BLOCK, 1 << 20, &buffers), case_of(BLOCK, 1 << 20, &buffers)];
    for case in &mut cases {
        case.buffer.borrow_mut().folder = Path::new("/proc/nowhere").into();
        pattern(100_000).chunks(7_000).for_each(|piece| case.server.send(piece));
        assert!(!case.fill() && case.server.has_to_wait());
        case.server.end();
        assert!(case.read_all() == pattern(100_000));
    }
    let lines = |cases: &[Case]| {
        cases.iter().flat_map(|case| case.lines.borrow().clone()).collect::<Vec<_>>()
    };
    let told = lines(&cases);
    assert!(
        told.len() == 1
            && told[0].starts_with("cannot buffer upstream responses in /proc/nowhere: "),
        "{told:?}"
    );
    let last = case_of(BLOCK, 1 << 20, &buffers);
    pattern(100_000).chunks(7_000).for_each(|piece| last.server.send(piece));
    last.server.end();
    assert!(last.fill());
    assert!(
        last.lines.borrow()[..]
            == [format!(
                "upstream responses can be buffered in {} again",
                last.folder.path().display()
            )]
    );
    // A nearly full disk alternates between failure and success.
    for _ in 0..3 {
        let context = last.buffer.borrow().context.clone();
        context.refused(last.folder.path(), &io::ErrorKind::StorageFull.into());
        context.written(last.folder.path());
    }
    assert_eq!(last.lines.borrow().len(), 1);
}

#[test]
fn what_came_before_a_break_is_handed_on_before_it() {
    let mut case = case(BLOCK, 1 << 20);
    pattern(100_000).chunks(7_000).for_each(|piece| case.server.send(piece));
    case.server.push(Err("it broke".into()));
    assert!(case.fill());
    let mut bytes = 0;
    let error = loop {
        match case.read() {
            Poll::Ready(Some(Ok(frame))) => bytes += frame.into_data().expect("data").len(),
            Poll::Ready(Some(Err(error))) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((bytes, error.to_string().as_str()), (100_000, "it broke"));
}

#[test]
fn trailers_come_last() {
    let mut case = case(BLOCK, 1 << 20);
    case.server.send(&pattern(50_000));
    case.server.push(Ok(Frame::trailers(HeaderMap::from_iter([(
        http::header::ETAG,
        http::HeaderValue::from_static("x"),
    )]))));
    case.server.end();
    assert!(case.fill());
    let mut bytes = 0;
    let trailers = loop {
        match case.read() {
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                bytes += frame.into_data().expect("data").len();
            }
            Poll::Ready(Some(Ok(frame))) => break frame.into_trailers().expect("trailers"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((bytes, trailers.len()), (50_000, 1));
    assert!(matches!(case.read(), Poll::Ready(None)));
}

#[test]
fn client_that_goes_away_ends_the_exchange_at_once() {
    let mut case = case(BLOCK, 1 << 20);
    pattern(100_000).chunks(7_000).for_each(|piece| case.server.send(piece));
    assert!(!case.fill());
    case.client = None;
    assert!(case.server.0.is_dropped.get());
    assert!(case.fill(), "its task ends");
    let buffers = case.buffers.clone();
    drop(case);
    assert_eq!(buffers.held(), [0, 0]);
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Read,
    Fill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..40_000_usize).prop_map(Step::Send),
        Just(Step::Read),
        Just(Step::Fill),
        Just(Step::Fill)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_order_the_client_gets_what_was_sent(steps in prop::collection::vec(step(), 1..60), memory in 0..4_u64, disk in 0..100_000_u64) {
        let mut case = case(memory * BLOCK, disk);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    let piece = pattern(sent.len() + bytes)[sent.len()..].to_vec();
                    case.server.send(&piece);
                    sent.extend(piece);
                }
                Step::Read => {
                    if let Poll::Ready(Some(Ok(frame))) = case.read() {
                        got.extend_from_slice(&frame.into_data().expect("data"));
                    }
                }
                Step::Fill => _ = case.fill(),
            }
            let [memory_held, disk_held] = case.held();
            prop_assert!(memory_held <= memory * BLOCK && disk_held <= disk);
        }
        case.server.end();
        got.extend(case.read_all());
        prop_assert!(got == sent);
        prop_assert!(matches!(case.read(), Poll::Ready(None)));
    }
}
