//! Interim responses of an HTTP/1.1 server, from the library's callback to who waits for the final one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use http::{Extensions, HeaderMap, StatusCode};

use crate::Body;

/// Told of each interim response.
pub(super) type OnInterim<'a> = &'a mut dyn FnMut(StatusCode, HeaderMap);

/// Interim responses that are held at the most; a server that sends more than are fetched loses the newest.
const MAX_WAITING: usize = 16;

/// Where the interim responses of one connection come in. Made once, since what the library wants of a request that listens is several pieces
/// of memory.
pub(super) struct Ear {
    shared: Arc<Shared>,
    /// What a request has that listens.
    extensions: Extensions,
}

/// What came and was not handed on yet. The library wants its callback to be shareable between threads.
#[derive(Default)]
struct Shared {
    has_responses: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    responses: Vec<(StatusCode, HeaderMap)>,
    waker: Option<Waker>,
}

/// One request that listens. Dropped, nobody does.
pub(super) struct Listening<'a>(&'a Shared);

impl Ear {
    pub(super) fn new() -> Self {
        let shared = Arc::<Shared>::default();
        let told = shared.clone();
        let mut request = http::Request::new(());
        hyper::ext::on_informational(&mut request, move |response| told.push(response.status(), response.headers()));
        Self { shared, extensions: std::mem::take(request.extensions_mut()) }
    }

    /// Collects the interim responses to `request`, the only one on the connection.
    pub(super) fn listen(&self, request: &mut http::Request<Body>) -> Listening<'_> {
        let extensions = request.extensions_mut();
        if extensions.is_empty() {
            *extensions = self.extensions.clone();
        } else {
            extensions.extend(self.extensions.clone());
        }
        Listening(&self.shared)
    }
}

impl Shared {
    fn push(&self, status: StatusCode, headers: &HeaderMap) {
        let mut state = self.lock();
        if state.responses.len() < MAX_WAITING {
            state.responses.push((status, headers.clone()));
        }
        self.has_responses.store(true, Ordering::Release);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Held around a push or a take, which leave the list whole even if they panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening<'_> {
    /// Hands on what came.
    pub(super) fn hand_on(&self, on_interim: OnInterim<'_>) {
        if self.0.has_responses.swap(false, Ordering::AcqRel) {
            let responses = std::mem::take(&mut self.0.lock().responses);
            for (status, headers) in responses {
                on_interim(status, headers);
            }
        }
    }

    /// The same, and has the task woken when more does.
    pub(super) fn poll(&self, cx: &mut Context<'_>, on_interim: OnInterim<'_>) {
        let mut state = self.0.lock();
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        drop(state);
        self.hand_on(on_interim);
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.has_responses.store(false, Ordering::Release);
        *self.0.lock() = State::default();
    }
}
