//! A descriptor in the host's libuv event loop.
//!
//! libuv's functions are looked up on first use, in the program that loaded the addon, because not
//! every host of Node-API has them.

#![expect(unsafe_code, reason = "libuv is a C interface")]

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::OnceLock;

use napi_sys as sys;

use crate::js::{Env, Failure};
use crate::readable::{OnReadable, run_or_abort};

/// `UV_POLL` of `uv_handle_type`, and `UV_READABLE`: part of libuv's stable binary interface.
const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;

type Loop = c_void;
type Handle = c_void;

struct Functions {
    poll_init: unsafe extern "C" fn(*mut Loop, *mut Handle, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(
        *mut Handle,
        c_int,
        unsafe extern "C" fn(*mut Handle, c_int, c_int),
    ) -> c_int,
    poll_stop: unsafe extern "C" fn(*mut Handle) -> c_int,
    close: unsafe extern "C" fn(*mut Handle, unsafe extern "C" fn(*mut Handle)),
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    set_data: unsafe extern "C" fn(*mut Handle, *mut c_void),
    data: unsafe extern "C" fn(*const Handle) -> *mut c_void,
    reference: unsafe extern "C" fn(*mut Handle),
    unreference: unsafe extern "C" fn(*mut Handle),
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero; the default handle is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[expect(clippy::missing_transmute_annotations, reason = "the fields have the types")]
fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    let load = || {
        // SAFETY: these are the functions' types in libuv 1, whose interface does not change; a
        // host of another version would not support Node-API's `napi_get_uv_event_loop`.
        unsafe {
            Some(Functions {
                poll_init: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_poll_init")?),
                poll_start: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_poll_start")?),
                poll_stop: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_poll_stop")?),
                close: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_close")?),
                handle_size: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_handle_size")?),
                set_data: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_handle_set_data")?),
                data: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_handle_get_data")?),
                reference: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_ref")?),
                unreference: std::mem::transmute::<*mut c_void, _>(symbol(c"uv_unref")?),
            })
        }
    };
    FUNCTIONS.get_or_init(load).as_ref()
}

/// Returns whether the host has libuv's functions.
pub(crate) fn is_there() -> bool {
    functions().is_some()
}

/// The state that the handle's data points to.
struct State {
    on_readable: OnReadable,
    /// The memory of the handle, as `u64` for alignment.
    handle: Box<[u64]>,
    hook: sys::napi_async_cleanup_hook_handle,
}

/// Calls a function on the loop's thread whenever the descriptor is readable.
///
/// It keeps the loop running until it is dropped or unreferenced.
pub(crate) struct Poll(*mut State);

impl Poll {
    /// # Errors
    ///
    /// If the host has no libuv, or libuv rejects the descriptor.
    pub(crate) fn new(
        env: Env,
        descriptor: RawFd,
        on_readable: OnReadable,
    ) -> Result<Self, Failure> {
        let no_libuv = || {
            let fix = "this runtime does not have Node.js's event loop (libuv), which pronghorn \
                needs: use Node.js 20 or later";
            Failure(fix.to_owned())
        };
        let functions = functions().ok_or_else(no_libuv)?;
        let mut event_loop: *mut sys::uv_loop_s = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        if unsafe { sys::napi_get_uv_event_loop(env.raw(), &raw mut event_loop) }
            != sys::Status::napi_ok
            || event_loop.is_null()
        {
            return Err(no_libuv());
        }
        // SAFETY: it only looks up a size.
        let size = unsafe { (functions.handle_size)(UV_POLL) };
        let state =
            State { on_readable, handle: vec![0; size.div_ceil(8)].into(), hook: ptr::null_mut() };
        let state = Box::into_raw(Box::new(state));
        // SAFETY: the state is owned here until the handle has been closed; the handle's memory is
        // as large as libuv says, does not move, and belongs to the loop from `poll_init` on. On
        // failure of that the state is freed, and nothing else knows of it.
        unsafe {
            let handle = (*state).handle.as_mut_ptr().cast::<Handle>();
            let status = (functions.poll_init)(event_loop.cast(), handle, descriptor);
            if status != 0 {
                drop(Box::from_raw(state));
                return Err(Failure(format!("cannot watch the worker with libuv: error {status}")));
            }
            (functions.set_data)(handle, state.cast());
            // When a worker thread ends, its loop can be closed only after all handles are closed.
            sys::napi_add_async_cleanup_hook(
                env.raw(),
                Some(on_environment_end),
                state.cast(),
                &raw mut (*state).hook,
            );
            let status = (functions.poll_start)(handle, UV_READABLE, on_poll);
            let poll = Self(state);
            if status == 0 {
                Ok(poll)
            } else {
                Err(Failure(format!("cannot watch the worker with libuv: error {status}")))
            }
        }
    }

    /// Sets whether it keeps the loop running.
    pub(crate) fn set_referenced(&self, referenced: bool) {
        let Some(functions) = functions() else { return };
        let change = if referenced { functions.reference } else { functions.unreference };
        // SAFETY: the handle is open as long as this exists.
        unsafe { change((*self.0).handle.as_mut_ptr().cast()) };
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        let Some(functions) = functions() else { return };
        // SAFETY: the handle is open; from here on only `on_closed` touches the state. The callback
        // may be the one that runs: what it calls is held by itself.
        unsafe {
            let handle = (*self.0).handle.as_mut_ptr().cast::<Handle>();
            (functions.poll_stop)(handle);
            (functions.close)(handle, on_closed);
        }
    }
}

unsafe extern "C" fn on_poll(handle: *mut Handle, _status: c_int, _events: c_int) {
    let Some(functions) = functions() else { return };
    // SAFETY: the handle's data is its state, which lives until `on_closed`.
    let on_readable = unsafe { (*(functions.data)(handle).cast::<State>()).on_readable.clone() };
    run_or_abort(&*on_readable);
}

unsafe extern "C" fn on_closed(handle: *mut Handle) {
    let Some(functions) = functions() else { return };
    // SAFETY: libuv is done with the handle; the state was boxed in `Poll::new`. The environment
    // may end now.
    unsafe {
        let state = Box::from_raw((functions.data)(handle).cast::<State>());
        if !state.hook.is_null() {
            sys::napi_remove_async_cleanup_hook(state.hook);
        }
    }
}

/// Called when the environment ends. It waits until `on_closed` removes the hook. The addon's own
/// hook closes the handle by dropping the workers.
unsafe extern "C" fn on_environment_end(
    _hook: sys::napi_async_cleanup_hook_handle,
    _state: *mut c_void,
) {
}
