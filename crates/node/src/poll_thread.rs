//! Notifies JavaScript's thread of a readable descriptor, with a second thread that waits for it:
//! for hosts of Node-API whose event loop is not libuv, such as Bun and Deno.
//!
//! The worker stays on JavaScript's thread. The second thread only waits, and waits again after
//! each turn of the worker. Each wake-up costs two thread switches, and delivers everything that is
//! ready.

#![expect(unsafe_code, reason = "Node-API is a C interface")]

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use napi_sys as sys;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::js::{Env, Failure};
use crate::readable::{OnReadable, run_or_abort};

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// The descriptor is being waited for.
    Waiting,
    /// JavaScript's thread has been notified, and has not run.
    Due,
    /// Waiting has ended.
    Over,
}

/// State shared by the two threads.
struct PollState {
    turn: Mutex<Turn>,
    changed: Condvar,
    /// Becomes readable when waiting has ended.
    end: OwnedFd,
}

impl PollState {
    fn set(&self, next: Turn) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if *turn != Turn::Over {
            *turn = next;
        }
        self.changed.notify_all();
    }

    /// Waits until the turn is over, or waiting has ended. Returns whether to continue.
    fn wait(&self) -> bool {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self
            .changed
            .wait_while(turn, |turn| *turn == Turn::Due)
            .unwrap_or_else(PoisonError::into_inner);
        *turn != Turn::Over
    }
}

/// The context of the function called on JavaScript's thread. It lives until Node-API finalizes
/// that function.
struct Context {
    on_readable: OnReadable,
    state: Arc<PollState>,
}

/// Calls a function on JavaScript's thread whenever the descriptor is readable.
///
/// It keeps the process running until it is dropped or unreferenced.
pub(crate) struct Poll {
    env: Env,
    function: sys::napi_threadsafe_function,
    state: Arc<PollState>,
    thread: Option<JoinHandle<()>>,
}

/// Node-API's handle of a thread-safe function.
#[derive(Clone, Copy)]
struct Function(sys::napi_threadsafe_function);

// SAFETY: it is for being called by any thread.
unsafe impl Send for Function {}

impl Function {
    /// Queues a call. Returns false if the function was closed.
    fn call(self) -> bool {
        // SAFETY: it is released after the thread that calls this has ended.
        let status = unsafe {
            sys::napi_call_threadsafe_function(
                self.0,
                ptr::null_mut(),
                sys::ThreadsafeFunctionCallMode::nonblocking,
            )
        };
        status == sys::Status::napi_ok
    }
}

impl Poll {
    /// # Errors
    ///
    /// If the host has no thread-safe functions, or the thread cannot be started.
    pub(crate) fn new(
        env: Env,
        descriptor: RawFd,
        on_readable: OnReadable,
    ) -> Result<Self, Failure> {
        // SAFETY: it is open for the length of this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let state =
            Arc::new(PollState { turn: Mutex::new(Turn::Waiting), changed: Condvar::new(), end });
        let context = Box::into_raw(Box::new(Context { on_readable, state: state.clone() }));
        let mut function = ptr::null_mut();
        // SAFETY: the context is freed by `finish`, when no call of `on_call` can come any more;
        // the pointer is to a local.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                env.raw(),
                ptr::null_mut(),
                ptr::null_mut(),
                env.string("pronghorn").raw(),
                0,
                1,
                context.cast(),
                Some(finish),
                context.cast(),
                Some(on_call),
                &raw mut function,
            )
        };
        if status != sys::Status::napi_ok {
            // SAFETY: nothing else knows of it.
            drop(unsafe { Box::from_raw(context) });
            return Err(Failure(format!(
                "cannot create a thread-safe function: Node-API status {status}"
            )));
        }
        let mut made = Self { env, function, state: state.clone(), thread: None };
        let handle = Function(function);
        let thread = std::thread::Builder::new()
            .name("pronghorn-poll".into())
            .spawn(move || watch(&descriptor, &state, handle))?;
        made.thread = Some(thread);
        Ok(made)
    }

    /// Sets whether it keeps the process running.
    pub(crate) fn set_referenced(&self, referenced: bool) {
        let change = if referenced {
            sys::napi_ref_threadsafe_function
        } else {
            sys::napi_unref_threadsafe_function
        };
        // SAFETY: the function is released when this is dropped.
        unsafe { change(self.env.raw(), self.function) };
    }
}

/// The loop of the waiting thread.
fn watch(descriptor: &OwnedFd, state: &PollState, function: Function) {
    while state.wait() {
        let mut watched = [
            PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN),
            PollFd::new(&state.end, PollFlags::IN),
        ];
        // An interrupted call is repeated.
        let _ = poll(&mut watched, None);
        if watched[0].revents().is_empty() {
            continue;
        }
        state.set(Turn::Due);
        if !function.call() {
            return;
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.state.set(Turn::Over);
        // It would fail on overflow of the counter, which one write cannot cause.
        let _ = rustix::io::write(&self.state.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // SAFETY: only that thread calls the function, and it has ended.
        unsafe {
            sys::napi_release_threadsafe_function(
                self.function,
                sys::ThreadsafeFunctionReleaseMode::abort,
            )
        };
    }
}

unsafe extern "C" fn on_call(
    env: sys::napi_env,
    _callback: sys::napi_value,
    context: *mut c_void,
    _data: *mut c_void,
) {
    if env.is_null() {
        // The host drains its queue after `finish`.
        return;
    }
    // SAFETY: the context lives until `finish`, which is not called while this runs.
    let context = unsafe { &*context.cast::<Context>() };
    if *context.state.turn.lock().unwrap_or_else(PoisonError::into_inner) == Turn::Due {
        let (on_readable, state) = (context.on_readable.clone(), context.state.clone());
        run_or_abort(&*on_readable);
        state.set(Turn::Waiting);
    }
}

unsafe extern "C" fn finish(_env: sys::napi_env, context: *mut c_void, _hint: *mut c_void) {
    // SAFETY: it was boxed in `Poll::new`, and this is called once.
    drop(unsafe { Box::from_raw(context.cast::<Context>()) });
}
