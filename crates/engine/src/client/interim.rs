//! Interim responses of an HTTP/1.1 server, from the library's callback to who waits for the final one.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use http::{HeaderMap, StatusCode};

use crate::Body;

/// Told of each interim response.
pub(super) type OnInterim<'a> = &'a mut dyn FnMut(StatusCode, HeaderMap);

/// Interim responses that are held at the most; a server that sends more than are fetched loses the newest.
const MAX_WAITING: usize = 16;

/// What came and was not handed on yet. The library wants its callback to be shareable between threads.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    responses: Vec<(StatusCode, HeaderMap)>,
    waker: Option<Waker>,
}

impl Waiting {
    /// Collects the interim responses to `request` here.
    pub(super) fn watch(&self, request: &mut http::Request<Body>) {
        let waiting = self.clone();
        hyper::ext::on_informational(request, move |response| waiting.push(response.status(), response.headers().clone()));
    }

    fn push(&self, status: StatusCode, headers: HeaderMap) {
        let mut state = self.lock();
        if state.responses.len() < MAX_WAITING {
            state.responses.push((status, headers));
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Hands on what came; the task is woken when more does.
    pub(super) fn poll(&self, cx: &mut Context<'_>, on_interim: OnInterim<'_>) {
        let responses = {
            let mut state = self.lock();
            state.waker = Some(cx.waker().clone());
            std::mem::take(&mut state.responses)
        };
        for (status, headers) in responses {
            on_interim(status, headers);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Held around a push or a take, which leave the list whole even if they panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
