//! A client for any task, with pools on its own threads.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use pronghorn_engine::{BodyError, Group, Handle, Responder, Worker, embed_in_tokio};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;

use crate::{Body, Content, Error, Options, Pool};

/// Maximum number of requests queued for a thread that has not accepted them yet.
const JOB_QUEUE_LENGTH: usize = 256;

/// Sends requests from any task on any runtime, over pooled connections.
///
/// Cheap to clone. Its threads end when the last clone and the last response have been dropped.
///
/// ```no_run
/// use http_body_util::BodyExt;
/// use pronghorn_client::{Body, Client};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let client = Client::new()?;
/// let request = http::Request::get("https://example.org/").body(Body::empty())?;
/// let response = client.send(request).await?;
/// println!("{} over {:?}", response.status(), response.version());
/// let content = response.into_body().collect().await?.to_bytes();
/// # let _ = content;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    threads: Arc<[mpsc::Sender<Job>]>,
    next: Arc<AtomicUsize>,
}

struct Job {
    request: Request<Body>,
    reply: oneshot::Sender<Result<Response<Body>, Error>>,
}

impl Client {
    /// Returns a client with one thread that trusts the system's certificate roots.
    ///
    /// ```no_run
    /// let client = pronghorn_client::Client::new()?;
    /// # let _ = client;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if no trust roots are available, or no thread or socket can be created.
    pub fn new() -> io::Result<Self> {
        Self::with_options(&Options::default(), 1)
    }

    /// Returns a client with the given number of threads, each with its own connections. Requests
    /// are distributed to the threads in turn.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use pronghorn_client::{Client, Http3, Options};
    ///
    /// let options = Options { http3: Http3::First, head_timeout: Duration::from_secs(5), ..Options::default() };
    /// let client = Client::with_options(&options, 2)?;
    /// # let _ = client;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if no trust roots are available, or no thread or socket can be created.
    pub fn with_options(options: &Options, threads: usize) -> io::Result<Self> {
        // Load the roots once, so that an error is reported before any thread starts.
        let tls = Arc::new(options.roots.to_config().map_err(io::Error::other)?);
        let options = Options { roots: crate::Roots::Config(tls), ..options.clone() };
        let threads = (0..threads.max(1))
            .map(|number| start(number, options.clone()))
            .collect::<io::Result<_>>()?;
        Ok(Self { threads, next: Arc::default() })
    }

    /// Sends a request and waits for the response head. The URI needs a scheme and a host.
    /// [`Pool::send`] describes when a request is retried.
    ///
    /// ```
    /// use http::{Request, header::CONTENT_TYPE};
    /// use http_body_util::BodyExt;
    /// use pronghorn_client::Client;
    ///
    /// async fn sum(client: &Client) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    ///     let request = Request::post("https://example.org/sum").header(CONTENT_TYPE, "application/json").body("[1, 2, 3]")?;
    ///     let content = client.send(request).await?.into_body().collect().await?.to_bytes();
    ///     Ok(String::from_utf8(content.to_vec())?)
    /// }
    /// # let _ = sum;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if no connection could be made, no response was received, or a timeout
    /// expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. So does dropping the response body before its end.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<Body>, Error>
    where
        B: Into<Body>,
    {
        let thread = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let (reply, response) = oneshot::channel();
        let job = Job { request: request.map(Into::into), reply };
        self.threads[thread].send(job).await.map_err(|_| Error::Ended)?;
        response.await.map_err(|_| Error::Ended)?
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl<B: Into<Body> + Send + 'static> Service<Request<B>> for Client {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.send(request).await })
    }
}

/// Client threads that have not been joined yet.
static THREADS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Waits until the threads of all clients have ended, at most for `limit`. A thread ends when the
/// last clone of its client is dropped.
///
/// Call this at the end of `main`: C libraries release their state when the process exits, and the
/// cryptography library aborts the process if a thread needs random numbers after that.
pub fn wait_for_threads(limit: Duration) {
    let (running, ended) = &RUNNING;
    let count = running.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ended.wait_timeout_while(count, limit, |count| *count > 0);
    if waited.is_ok_and(|(_, timeout)| !timeout.timed_out()) {
        let threads = std::mem::take(&mut *THREADS.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // If the thread panicked, the client's callers have already received an error.
            let _ = thread.join();
        }
    }
}

/// Counts a running thread.
struct Running;

impl Running {
    fn begin() -> Self {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RUNNING.1.notify_all();
    }
}

/// Starts a thread and waits until it is ready.
fn start(number: usize, options: Options) -> io::Result<mpsc::Sender<Job>> {
    let (jobs, waiting) = mpsc::channel(JOB_QUEUE_LENGTH);
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let running = Running::begin();
    let run = move || {
        let _running = running;
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        // Stay inside the runtime until the worker is dropped: bodies dropped with the worker may
        // have destructors that spawn tasks.
        let _inside = runtime.enter();
        let made =
            Worker::new(0, &Group::new(1), options.engine.clone(), |_, responder: Responder| {
                drop(responder);
            })
            .and_then(|mut worker| Pool::new(&mut worker, options).map(|pool| (worker, pool)));
        match made {
            Ok((mut worker, pool)) => {
                drop(ready.send(Ok(())));
                runtime.block_on(serve(&mut worker, pool, waiting));
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new().name(format!("client-{number}")).spawn(run)?;
    {
        let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
    started.recv().map_err(|_| io::Error::other("a client thread ended unexpectedly"))??;
    Ok(jobs)
}

/// Runs jobs until no client can submit any more and every response is complete.
async fn serve(worker: &mut Worker, pool: Pool, mut waiting: mpsc::Receiver<Job>) {
    let open = OpenWork::default();
    let handle = worker.handle().clone();
    let open_jobs = open.clone();
    let spawner = handle.clone();
    handle.spawn(async move {
        let asking = open_jobs.add();
        while let Some(job) = waiting.recv().await {
            spawner.spawn(run(job, pool.clone(), open_jobs.add(), spawner.clone()));
        }
        drop(asking);
    });
    // If the worker fails, waiting callers notice that their channel is closed.
    let _ = embed_in_tokio(worker, |worker, now| {
        if open.is_over() {
            worker.shut_down(now, Duration::ZERO);
        }
        worker.is_finished()
    })
    .await;
}

async fn run(job: Job, pool: Pool, open: OpenGuard, handle: Handle) {
    let Job { request, mut reply } = job;
    let mut sent = pin!(pool.send(request.map(Into::<pronghorn_engine::Body>::into)));
    let result = poll_fn(|cx| match sent.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        // The caller no longer waits.
        Poll::Pending => reply.poll_closed(cx).map(|()| None),
    })
    .await;
    let Some(result) = result else { return };
    let result = result.map(|response| {
        let length = response
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        response.map(|content| Body::carry(KeptBody { content, _open: open }, length, &handle))
    });
    drop(reply.send(result));
}

/// Counts what a thread must finish before it ends: the clients that can submit jobs, and open
/// responses.
#[derive(Clone, Default)]
struct OpenWork {
    count: Rc<Cell<usize>>,
    began: Rc<Cell<bool>>,
}

struct OpenGuard(OpenWork);

impl OpenWork {
    fn add(&self) -> OpenGuard {
        self.began.set(true);
        self.count.set(self.count.get() + 1);
        OpenGuard(self.clone())
    }

    fn is_over(&self) -> bool {
        self.began.get() && self.count.get() == 0
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}

/// A body that keeps its thread running.
struct KeptBody {
    content: Content,
    _open: OpenGuard,
}

impl http_body::Body for KeptBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.content).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
