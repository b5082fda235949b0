//! Counters of a signer, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::keys::Key;
use crate::signer::error::SignError;
use crate::signer::protocol::ErrorCode;

/// Counters of a signer.
#[derive(Debug)]
pub(super) struct Metrics {
    keys: Vec<Arc<Key>>,
    open: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed_handshakes: AtomicU64,
    slow_readers: AtomicU64,
    requests: AtomicU64,
    pings: AtomicU64,
    /// Requests that were answered with an error, by its code.
    errors: [AtomicU64; 12],
    overloaded: AtomicU64,
    sign_nanoseconds: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// A connection that is counted as open.
#[derive(Debug)]
pub(super) struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(super) fn new(keys: Vec<Arc<Key>>) -> Self {
        let number = || AtomicU64::new(0);
        Self {
            keys,
            open: AtomicUsize::new(0),
            accepted: number(),
            refused: number(),
            failed_handshakes: number(),
            slow_readers: number(),
            requests: number(),
            pings: number(),
            errors: std::array::from_fn(|_| number()),
            overloaded: number(),
            sign_nanoseconds: number(),
            last_error: Mutex::new(None),
        }
    }

    /// Counts a connection, unless `limit` are open.
    pub(super) fn open_connection(&self, limit: usize) -> Option<Open<'_>> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= limit {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(Open(&self.open))
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn on_failed_handshake(&self) {
        self.failed_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_slow_reader(&self) {
        self.slow_readers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_ping(&self) {
        self.pings.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_overload(&self) {
        self.overloaded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was answered with an error before it came to a signature.
    pub(super) fn on_refusal(&self, code: ErrorCode) {
        if let Some(counter) = self.errors.get(usize::from(code.0)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn on_sign(&self, duration: Duration) {
        self.sign_nanoseconds.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn on_error(&self, key: &str, error: &SignError) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{key}: {error}"));
    }

    /// Returns the reason of the last signature that failed, once.
    pub(super) fn take_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// `queued`: requests that wait for a signature now.
    pub(super) fn exposition(&self, queued: usize) -> String {
        let mut text = String::new();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let one = |value: u64| vec![(String::new(), value.to_string())];
        let mut add = |name: &str, kind: &str, help: &str, series: Vec<(String, String)>| {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP pronghorn_signer_{name} {help}\n# TYPE pronghorn_signer_{name} {kind}"
            );
            for (labels, value) in series {
                let _ = writeln!(text, "pronghorn_signer_{name}{labels} {value}");
            }
        };
        add(
            "connections_open",
            "gauge",
            "Connections of clients open now.",
            one(self.open() as u64),
        );
        add(
            "connections_accepted_total",
            "counter",
            "Connections accepted.",
            one(of(&self.accepted)),
        );
        add(
            "connections_refused_total",
            "counter",
            "Connections closed because as many as the limit allows were open.",
            one(of(&self.refused)),
        );
        add(
            "handshakes_failed_total",
            "counter",
            "TLS handshakes that failed or timed out, those of unknown clients included.",
            one(of(&self.failed_handshakes)),
        );
        add(
            "slow_readers_total",
            "counter",
            "Connections closed because the client did not read its answers.",
            one(of(&self.slow_readers)),
        );
        add("requests_total", "counter", "Requests, without pings.", one(of(&self.requests)));
        add("pings_total", "counter", "Pings.", one(of(&self.pings)));
        add(
            "requests_queued",
            "gauge",
            "Requests that wait for their signature now.",
            one(queued as u64),
        );
        add(
            "requests_overloaded_total",
            "counter",
            "Requests refused because as many as the limit allows were waiting.",
            one(of(&self.overloaded)),
        );
        let refused = (0_u8..).zip(&self.errors).filter(|(_, counter)| of(counter) > 0);
        let refused = refused
            .map(|(code, counter)| {
                let name = ErrorCode(code).to_string().to_lowercase();
                (format!("{{code=\"{name}\"}}"), of(counter).to_string())
            })
            .collect();
        add(
            "requests_refused_total",
            "counter",
            "Requests answered with an error before a key was used, by error.",
            refused,
        );
        let by_key = |position: usize| -> Vec<_> {
            self.keys
                .iter()
                .map(|key| {
                    let name = key.name().replace('\\', "\\\\").replace('"', "\\\"");
                    (format!("{{key=\"{name}\"}}"), key.counts()[position].to_string())
                })
                .collect()
        };
        add("signatures_total", "counter", "Signatures, by key.", by_key(0));
        add("signatures_failed_total", "counter", "Signatures that failed, by key.", by_key(1));
        let seconds = Duration::from_nanos(of(&self.sign_nanoseconds)).as_secs_f64();
        add(
            "sign_seconds_total",
            "counter",
            "Time that keys took to sign, without the time in the queue.",
            vec![(String::new(), format!("{seconds:.6}"))],
        );
        text
    }
}
