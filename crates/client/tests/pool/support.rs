//! A pool on one worker and servers on others, with a clock that the test can advance.

use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use pronghorn_client::{Content, Error, Http3, Options, Pool, Resolve, Roots};
use pronghorn_engine::{
    Body, Config, Group, Handler, Identity, Listener, Protocol, Request, Responder, Response,
    Stats, Worker,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];
/// Maximum real time of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// The body of a response or the error; `None` until the request completes.
pub(crate) type Outcome = Rc<RefCell<Option<Result<Bytes, Error>>>>;

pub(crate) struct Bench {
    pub(crate) servers: Vec<Worker>,
    pub(crate) client: Worker,
    pub(crate) pool: Pool,
    pub(crate) address: SocketAddr,
    pub(crate) stats: Vec<Arc<Stats>>,
    began: Instant,
    pub(crate) skipped: Duration,
}

/// Returns options for this protocol only.
pub(crate) fn only(protocol: Protocol) -> Options {
    let http3 = if protocol == Protocol::Http3 { Http3::Only } else { Http3::Off };
    let resolve =
        Resolve::new(|_, port| async move { Ok(vec![(Ipv4Addr::LOCALHOST, port).into()]) });
    Options { http3, tcp: Some(protocol), resolve, ..Options::default() }
}

impl Bench {
    pub(crate) fn new<H: Handler + Clone>(options: Options, handler: &H) -> Self {
        Self::with_servers(1, options, handler)
    }

    pub(crate) fn with_servers<H: Handler + Clone>(
        count: usize,
        options: Options,
        handler: &H,
    ) -> Self {
        Self::with_config(count, &Config::default(), options, handler)
    }

    /// Host names are resolved with `options.resolve`.
    pub(crate) fn with_config<H: Handler + Clone>(
        count: usize,
        config: &Config,
        options: Options,
        handler: &H,
    ) -> Self {
        Self::at(&[Ipv4Addr::LOCALHOST], count, config, options, handler)
    }

    /// Starts servers on the same port of each of these addresses. `stats` contains each server's
    /// counters, in this order.
    pub(crate) fn at<H: Handler + Clone>(
        ips: &[Ipv4Addr],
        count: usize,
        config: &Config,
        options: Options,
        handler: &H,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let roots = Roots::pem(made.cert.pem());
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let identity = Identity::new(vec![CertificateDer::from(made.cert)], key).unwrap();
        let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (mut servers, mut stats) = (Vec::new(), Vec::new());
        for ip in ips {
            let listener = Listener::secure((*ip, address.port()).into(), count, None).unwrap();
            address.set_port(listener.address().port());
            let group = Group::new(count);
            for (number, sockets) in listener.into_sockets().into_iter().enumerate() {
                let mut server =
                    Worker::new(number, &group, config.clone(), handler.clone()).unwrap();
                server.listen(sockets, Some(&identity)).unwrap();
                servers.push(server);
            }
            stats.extend(group.stats().cloned());
        }
        let refuse = |_, responder: Responder| drop(responder);
        let mut client = Worker::new(0, &Group::new(1), Config::default(), refuse).unwrap();
        let pool = Pool::new(&mut client, Options { roots, ..options }).unwrap();
        Self {
            servers,
            client,
            pool,
            address,
            stats,
            began: Instant::now(),
            skipped: Duration::ZERO,
        }
    }

    pub(crate) fn turn(&mut self) {
        assert!(self.began.elapsed() < PATIENCE, "the test timed out");
        let now = Instant::now() + self.skipped;
        self.servers.iter_mut().for_each(|server| server.turn(now).unwrap());
        self.client.turn(now).unwrap();
    }

    /// Runs `future` on the client's worker.
    pub(crate) fn run<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.client.handle().spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        while result.borrow().is_none() {
            self.turn();
        }
        result.take().unwrap()
    }

    /// Runs `count` turns, without waiting for an event.
    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Advances the clock in `steps` steps.
    pub(crate) fn pass(&mut self, steps: u32, step: Duration) {
        for _ in 0..steps {
            self.skipped += step;
            self.turns(20);
        }
    }

    pub(crate) fn turn_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    /// Sends a request and returns the slot for its outcome.
    pub(crate) fn begin(&self, request: http::Request<Body>) -> Outcome {
        let (pool, outcome) = (self.pool.clone(), Outcome::default());
        let slot = outcome.clone();
        self.client.handle().spawn(async move {
            let answer = match pool.send(request).await {
                Ok(response) => Ok(response.into_body().collect().await.unwrap().to_bytes()),
                Err(error) => Err(error),
            };
            *slot.borrow_mut() = Some(answer);
        });
        outcome
    }

    pub(crate) fn get(&self, path: &str) -> http::Request<Body> {
        http::Request::get(format!("https://localhost:{}{path}", self.address.port()))
            .body(Body::empty())
            .unwrap()
    }

    pub(crate) fn request(&self) -> http::Request<Body> {
        http::Request::get(format!("https://localhost:{}/", self.address.port()))
            .body(Body::empty())
            .unwrap()
    }

    pub(crate) fn send(
        &mut self,
        request: http::Request<Body>,
    ) -> Result<http::Response<Content>, Error> {
        let pool = self.pool.clone();
        self.run(async move { pool.send(request).await })
    }

    /// Sends a request and returns the response body.
    pub(crate) fn fetch(&mut self) -> Bytes {
        let response = self.send(self.request()).unwrap();
        self.run(async move { response.into_body().collect().await.unwrap().to_bytes() })
    }

    pub(crate) fn sum(&self, counter: impl Fn(&Stats) -> u64) -> u64 {
        self.stats.iter().map(|stats| counter(stats)).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.sum(|stats| {
            stats.requests_http1.value()
                + stats.requests_http2.value()
                + stats.requests_http3.value()
        })
    }

    pub(crate) fn open(&self) -> u64 {
        self.sum(|stats| stats.tcp_open.value() + stats.quic_open.value())
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.sum(|stats| stats.tcp_accepted.value() + stats.quic_accepted.value())
    }
}

pub(crate) fn hello(_: Request, responder: Responder) {
    responder.send(Response::new(StatusCode::OK).with_body("hello"));
}

/// Answers all requests except those for `/`, which stay pending.
pub(crate) fn silent_at_first(Request { uri, .. }: Request, responder: Responder) {
    if uri.path() == "/" {
        std::mem::forget(responder);
    } else {
        responder.send(Response::new(StatusCode::OK).with_body("hello"));
    }
}
