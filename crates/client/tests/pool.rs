//! A pool on a worker, beside a server on another, on a clock that the test can move forward.

#[cfg(test)]
mod pool {
    use std::cell::{Cell, OnceCell, RefCell};
    use std::future::Future;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use http::StatusCode;
    use http_body_util::BodyExt;
    use pronghorn_client::{Content, Error, Http3, Options, Phase, Pool, Resolve, Roots};
    use pronghorn_engine::{Body, Config, Group, Handler, Identity, Listener, Protocol, Request, Responder, Response, Stats, Worker};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];
    /// The longest that any test may take in real time.
    const PATIENCE: Duration = Duration::from_secs(60);

    struct Bench {
        servers: Vec<Worker>,
        client: Worker,
        pool: Pool,
        address: SocketAddr,
        stats: Vec<Arc<Stats>>,
        began: Instant,
        skipped: Duration,
    }

    /// What speaks this protocol and no other.
    fn only(protocol: Protocol) -> Options {
        let http3 = if protocol == Protocol::Http3 { Http3::Only } else { Http3::Off };
        Options { http3, tcp: Some(protocol), ..Options::default() }
    }

    impl Bench {
        fn new<H: Handler + Clone>(options: Options, handler: &H) -> Self {
            Self::with_servers(1, options, handler)
        }

        fn with_servers<H: Handler + Clone>(count: usize, options: Options, handler: &H) -> Self {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let roots = Roots::pem(made.cert.pem());
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
            let identity = Identity::new(vec![CertificateDer::from(made.cert)], key).unwrap();
            let listener = Listener::secure((Ipv4Addr::LOCALHOST, 0).into(), count, None).unwrap();
            let address = listener.address();
            let group = Group::new(count);
            let start = |(number, sockets)| {
                let mut server = Worker::new(number, &group, Config::default(), handler.clone()).unwrap();
                server.listen(sockets, Some(&identity)).unwrap();
                server
            };
            let servers = listener.into_sockets().into_iter().enumerate().map(start).collect();
            let refuse = |_, responder: Responder| drop(responder);
            let mut client = Worker::new(0, &Group::new(1), Config::default(), refuse).unwrap();
            let resolve = Resolve::new(|_, port| async move { Ok(vec![(Ipv4Addr::LOCALHOST, port).into()]) });
            let pool = Pool::new(&mut client, Options { roots, resolve, ..options }).unwrap();
            let stats = group.stats().cloned().collect();
            Self { servers, client, pool, address, stats, began: Instant::now(), skipped: Duration::ZERO }
        }

        fn turn(&mut self) {
            assert!(self.began.elapsed() < PATIENCE, "nothing came of it");
            let now = Instant::now() + self.skipped;
            self.servers.iter_mut().for_each(|server| server.turn(now).unwrap());
            self.client.turn(now).unwrap();
        }

        /// Runs `future` on the client's worker.
        fn run<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
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

        fn request(&self) -> http::Request<Body> {
            http::Request::get(format!("https://localhost:{}/", self.address.port())).body(Body::empty()).unwrap()
        }

        fn send(&mut self, request: http::Request<Body>) -> Result<http::Response<Content>, Error> {
            let pool = self.pool.clone();
            self.run(async move { pool.send(request).await })
        }

        /// The whole content of the response to one request.
        fn fetch(&mut self) -> Bytes {
            let response = self.send(self.request()).unwrap();
            self.run(async move { response.into_body().collect().await.unwrap().to_bytes() })
        }

        fn sum(&self, counter: impl Fn(&Stats) -> u64) -> u64 {
            self.stats.iter().map(|stats| counter(stats)).sum()
        }

        fn requests(&self) -> u64 {
            self.sum(|stats| stats.requests_http1.value() + stats.requests_http2.value() + stats.requests_http3.value())
        }

        fn open(&self) -> u64 {
            self.sum(|stats| stats.tcp_open.value() + stats.quic_open.value())
        }

        fn accepted(&self) -> u64 {
            self.sum(|stats| stats.tcp_accepted.value() + stats.quic_accepted.value())
        }
    }

    fn hello(_: Request, responder: Responder) {
        responder.send(Response::new(StatusCode::OK).with_body("hello"));
    }

    #[test]
    fn connection_that_nobody_uses_is_closed_after_its_time() {
        for protocol in PROTOCOLS {
            // Less than after what time the server closes it.
            let mut bench = Bench::new(Options { idle_timeout: Duration::from_secs(20), ..only(protocol) }, &hello);
            assert_eq!(bench.fetch(), "hello");
            bench.skipped += Duration::from_secs(5);
            for _ in 0..20 {
                bench.turn();
            }
            assert_eq!(bench.open(), 1, "{protocol}");
            for _ in 0..4 {
                bench.skipped += Duration::from_secs(6);
                for _ in 0..20 {
                    bench.turn();
                }
            }
            while bench.open() > 0 {
                bench.turn();
            }
            assert_eq!(bench.sum(|stats| stats.idle_timeouts.value() + stats.quic_timed_out.value()), 0, "{protocol}");
            assert_eq!(bench.fetch(), "hello");
            assert_eq!(bench.accepted(), 2, "{protocol}");
        }
    }

    #[test]
    fn response_that_does_not_come_is_given_up_after_its_time() {
        let silent = |_, responder: Responder| std::mem::forget(responder);
        for protocol in PROTOCOLS {
            let mut bench = Bench::new(Options { head_timeout: Duration::from_secs(20), ..only(protocol) }, &silent);
            let (pool, request) = (bench.pool.clone(), bench.request());
            let result = Rc::new(OnceCell::new());
            let slot = result.clone();
            bench.client.handle().spawn(async move {
                let sent = pool.send(request).await;
                slot.set(sent.map(drop)).unwrap();
            });
            while bench.requests() == 0 {
                bench.turn();
            }
            bench.skipped += Duration::from_secs(19);
            for _ in 0..20 {
                bench.turn();
            }
            assert!(result.get().is_none(), "{protocol}");
            bench.skipped += Duration::from_secs(2);
            while result.get().is_none() {
                bench.turn();
            }
            assert!(matches!(result.get().unwrap(), Err(Error::TimedOut(Phase::Head))), "{protocol}");
        }
    }

    /// Answers but the request for `/`, which waits.
    fn silent_at_first(Request { uri, .. }: Request, responder: Responder) {
        if uri.path() == "/" {
            std::mem::forget(responder);
        } else {
            responder.send(Response::new(StatusCode::OK).with_body("hello"));
        }
    }

    #[test]
    fn request_that_a_server_about_to_end_refuses_goes_over_another_connection() {
        let handler: fn(Request, Responder) = silent_at_first;
        let mut bench = Bench::with_servers(2, only(Protocol::Http2), &handler);
        let (pool, request) = (bench.pool.clone(), bench.request());
        // Keeps the connection open when its server ends.
        bench.client.handle().spawn(async move { drop(pool.send(request).await) });
        while bench.requests() == 0 {
            bench.turn();
        }
        let ending = usize::from(bench.stats[0].requests_http2.value() == 0);
        bench.servers[ending].shut_down(Instant::now() + bench.skipped, Duration::from_secs(60));
        for _ in 0..20 {
            bench.turn();
        }
        assert_eq!(bench.stats[ending].tcp_open.value(), 1);
        // Whatever the method: the server has done nothing for it.
        let uri = format!("https://localhost:{}/other", bench.address.port());
        let request = http::Request::post(uri).body(Body::from("once")).unwrap();
        assert_eq!(bench.send(request).unwrap().status(), StatusCode::OK);
        assert_eq!(bench.stats[1 - ending].requests_http2.value(), 1);
    }

    #[test]
    fn dropped_request_frees_its_place() {
        let silent: fn(Request, Responder) = silent_at_first;
        let mut bench = Bench::new(Options { connections_per_origin: 1, ..only(Protocol::Http1) }, &silent);
        let (pool, request) = (bench.pool.clone(), bench.request());
        let handle = bench.client.handle().clone();
        let dropped = Rc::new(Cell::new(false));
        let seen = dropped.clone();
        bench.client.handle().spawn(async move {
            let mut sent = Box::pin(pool.send(request));
            let mut sleep = Box::pin(handle.sleep(Duration::from_secs(1)));
            std::future::poll_fn(|cx| {
                assert!(sent.as_mut().poll(cx).is_pending());
                sleep.as_mut().poll(cx)
            })
            .await;
            drop(sent);
            seen.set(true);
        });
        while bench.requests() == 0 {
            bench.turn();
        }
        bench.skipped += Duration::from_secs(2);
        while !dropped.get() {
            bench.turn();
        }
        let mut other = bench.request();
        *other.uri_mut() = format!("https://localhost:{}/other", bench.address.port()).parse().unwrap();
        assert_eq!(bench.send(other).unwrap().status(), StatusCode::OK);
    }
}
