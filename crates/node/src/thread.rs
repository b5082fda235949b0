//! Tells the thread of JavaScript that a descriptor is readable, by a thread that waits for it: for hosts of Node-API whose event loop is
//! not libuv's, such as Bun and Deno.
//!
//! The worker stays on the thread of JavaScript. The other one does nothing but wait, and waits again when the worker has had its turn.
//! It costs two changes of threads for each wake-up, which brings all that is ready.

#![expect(unsafe_code, reason = "Node-API is a C interface")]

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use napi_sys as sys;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::js::{Env, Failure};
use crate::poll::{OnReadable, run_or_abort};

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// The descriptor is being waited for.
    Waiting,
    /// JavaScript's thread has been told, and has not had its turn.
    Due,
    /// There is nothing to wait for any more.
    Over,
}

/// What the two threads share.
struct Baton {
    turn: Mutex<Turn>,
    changed: Condvar,
    /// Becomes readable when it is over.
    end: OwnedFd,
}

impl Baton {
    fn set(&self, next: Turn) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if *turn != Turn::Over {
            *turn = next;
        }
        self.changed.notify_all();
    }

    /// Waits until the turn is over, or all is. Returns whether there is anything to wait for.
    fn wait(&self) -> bool {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.changed.wait_while(turn, |turn| *turn == Turn::Due).unwrap_or_else(PoisonError::into_inner);
        *turn != Turn::Over
    }
}

/// What the function that is called on JavaScript's thread knows. It lives until Node-API is done with that function.
struct Context {
    on_readable: OnReadable,
    baton: Arc<Baton>,
}

/// Calls a function on JavaScript's thread whenever the descriptor is readable.
///
/// It keeps the process running, until it is dropped or unreferenced.
pub(crate) struct Poll {
    env: Env,
    function: sys::napi_threadsafe_function,
    baton: Arc<Baton>,
    thread: Option<JoinHandle<()>>,
}

/// Node-API's handle of a function that any thread may call.
#[derive(Clone, Copy)]
struct Function(sys::napi_threadsafe_function);

// SAFETY: it is for being called by any thread.
unsafe impl Send for Function {}

impl Function {
    /// Queues a call. Returns whether there still is somebody to call.
    fn call(self) -> bool {
        // SAFETY: it is released after the thread that calls this has ended.
        let status = unsafe { sys::napi_call_threadsafe_function(self.0, ptr::null_mut(), sys::ThreadsafeFunctionCallMode::nonblocking) };
        status == sys::Status::napi_ok
    }
}

impl Poll {
    /// # Errors
    ///
    /// When the host has no threadsafe functions, or there can be no other thread.
    pub(crate) fn new(env: Env, descriptor: RawFd, on_readable: OnReadable) -> Result<Self, Failure> {
        // SAFETY: it is open for the length of this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let baton = Arc::new(Baton { turn: Mutex::new(Turn::Waiting), changed: Condvar::new(), end });
        let context = Box::into_raw(Box::new(Context { on_readable, baton: baton.clone() }));
        let mut function = ptr::null_mut();
        // SAFETY: the context is freed by `finish`, when no call of `on_call` can come any more; the pointer is to a local.
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
            return Err(Failure(format!("no function for other threads can be made: Node-API status {status}")));
        }
        let mut made = Self { env, function, baton: baton.clone(), thread: None };
        let handle = Function(function);
        let thread = std::thread::Builder::new().name("pronghorn-poll".into()).spawn(move || watch(&descriptor, &baton, handle))?;
        made.thread = Some(thread);
        Ok(made)
    }

    /// Whether the process goes on because of it.
    pub(crate) fn set_referenced(&self, referenced: bool) {
        let change = if referenced { sys::napi_ref_threadsafe_function } else { sys::napi_unref_threadsafe_function };
        // SAFETY: the function is released when this is dropped.
        unsafe { change(self.env.raw(), self.function) };
    }
}

/// What the other thread does.
fn watch(descriptor: &OwnedFd, baton: &Baton, function: Function) {
    while baton.wait() {
        let mut watched = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN), PollFd::new(&baton.end, PollFlags::IN)];
        // What interrupts it is no reason to end.
        let _ = poll(&mut watched, None);
        if watched[0].revents().is_empty() {
            continue;
        }
        baton.set(Turn::Due);
        if !function.call() {
            return;
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.baton.set(Turn::Over);
        // It fails where the number in it would overflow, which one write cannot make it do.
        let _ = rustix::io::write(&self.baton.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // SAFETY: nobody calls it from here on, since that thread has ended.
        unsafe { sys::napi_release_threadsafe_function(self.function, sys::ThreadsafeFunctionReleaseMode::abort) };
    }
}

unsafe extern "C" fn on_call(env: sys::napi_env, _callback: sys::napi_value, context: *mut c_void, _data: *mut c_void) {
    if env.is_null() {
        // The host only empties its queue, and has called `finish` already.
        return;
    }
    // SAFETY: the context lives until `finish`, which is not called while this runs.
    let context = unsafe { &*context.cast::<Context>() };
    if *context.baton.turn.lock().unwrap_or_else(PoisonError::into_inner) == Turn::Due {
        let (on_readable, baton) = (context.on_readable.clone(), context.baton.clone());
        run_or_abort(&*on_readable);
        baton.set(Turn::Waiting);
    }
}

unsafe extern "C" fn finish(_env: sys::napi_env, context: *mut c_void, _hint: *mut c_void) {
    // SAFETY: it was boxed in `Poll::new`, and this is called once.
    drop(unsafe { Box::from_raw(context.cast::<Context>()) });
}
