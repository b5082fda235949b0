//! Safe functions around Node-API, for the thread of their environment.

#![expect(unsafe_code, reason = "Node-API is a C interface")]

use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use napi_sys as sys;

/// A JavaScript value, valid within the scope that it was created in.
#[derive(Clone, Copy)]
pub(crate) struct Value(sys::napi_value);

/// A JavaScript value that is kept until the environment ends.
pub(crate) struct Persistent(sys::napi_ref);

/// An environment: one thread's JavaScript with its event loop.
///
/// It is neither `Send` nor `Sync`. Nothing here outlives the environment: its clean-up hook drops
/// everything that could.
#[derive(Clone, Copy)]
pub(crate) struct Env(sys::napi_env);

/// The failure of a native function, thrown as an `Error` with this message.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl<T: std::fmt::Display> From<T> for Failure {
    fn from(reason: T) -> Self {
        Self(reason.to_string())
    }
}

/// Maximum number of arguments of a native function.
const MAX_ARGUMENTS: usize = 6;

/// A call from JavaScript. `A`: the state of the environment.
pub(crate) struct Call<'a, A> {
    pub(crate) env: Env,
    pub(crate) addon: &'a Rc<A>,
    arguments: [sys::napi_value; MAX_ARGUMENTS],
}

pub(crate) type Native<A> = fn(&Call<'_, A>) -> Result<Value, Failure>;

/// The data of an exported function.
struct Entry<A> {
    /// Dropped when the environment ends.
    addon: Weak<A>,
    native: Native<A>,
}

unsafe extern "C" fn free_entry<A>(_env: sys::napi_env, data: *mut c_void, _hint: *mut c_void) {
    // SAFETY: `Env::function` boxed it, and its function is gone.
    drop(unsafe { Box::from_raw(data.cast::<Entry<A>>()) });
}

unsafe extern "C" fn trampoline<A>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let env = Env(env);
    let mut arguments = [ptr::null_mut(); MAX_ARGUMENTS];
    let mut count = MAX_ARGUMENTS;
    let mut data: *mut c_void = ptr::null_mut();
    // SAFETY: the pointers are to locals of the lengths given; missing arguments are filled with
    // `undefined`.
    unsafe {
        sys::napi_get_cb_info(
            env.0,
            info,
            &raw mut count,
            arguments.as_mut_ptr(),
            ptr::null_mut(),
            &raw mut data,
        )
    };
    // SAFETY: `Env::function` gave an `Entry` as data, which lives as long as the function.
    let entry = unsafe { &*data.cast::<Entry<A>>() };
    let Some(addon) = entry.addon.upgrade() else {
        env.throw("this thread of JavaScript is ending");
        return ptr::null_mut();
    };
    let call = Call { env, addon: &addon, arguments };
    match catch_unwind(AssertUnwindSafe(|| (entry.native)(&call))) {
        Ok(Ok(value)) => value.0,
        Ok(Err(Failure(reason))) => {
            env.throw(&reason);
            ptr::null_mut()
        }
        Err(_) => end_after_panic(),
    }
}

/// Aborts the process after a panic: state may be inconsistent, and continuing could send one
/// client's data to another.
pub(crate) fn end_after_panic() -> ! {
    eprintln!("pronghorn: the addon panicked; please report the message above");
    std::process::abort()
}

fn check(status: sys::napi_status, what: &str) -> Result<(), Failure> {
    if status == sys::Status::napi_ok {
        Ok(())
    } else {
        Err(Failure(format!("{what}: Node-API status {status}")))
    }
}

impl Value {
    pub(crate) fn from_raw(value: sys::napi_value) -> Self {
        Self(value)
    }

    pub(crate) fn raw(self) -> sys::napi_value {
        self.0
    }
}

impl Env {
    pub(crate) fn from_raw(env: sys::napi_env) -> Self {
        Self(env)
    }

    pub(crate) fn raw(self) -> sys::napi_env {
        self.0
    }

    /// Adds a function to the exports.
    pub(crate) fn function<A>(
        self,
        exports: Value,
        name: &str,
        addon: &Rc<A>,
        native: Native<A>,
    ) -> Result<(), Failure> {
        let data = Box::into_raw(Box::new(Entry { addon: Rc::downgrade(addon), native })).cast();
        let mut function = ptr::null_mut();
        // SAFETY: the name is `name.len()` bytes; `data` lives until the finalizer below, which
        // runs when the function is unreachable, or forever if the finalizer cannot be added.
        let status = unsafe {
            let status = sys::napi_create_function(
                self.0,
                name.as_ptr().cast(),
                name.len() as isize,
                Some(trampoline::<A>),
                data,
                &raw mut function,
            );
            check(status, name)?;
            sys::napi_add_finalizer(
                self.0,
                function,
                data,
                Some(free_entry::<A>),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(status, name)?;
        self.set(exports, name, Value(function))
    }

    pub(crate) fn set(self, object: Value, name: &str, value: Value) -> Result<(), Failure> {
        let name = CString::new(name)?;
        // SAFETY: both values are of this environment and scope; the name ends with a zero.
        check(
            unsafe { sys::napi_set_named_property(self.0, object.0, name.as_ptr(), value.0) },
            "set property",
        )
    }

    /// Reports native memory of JavaScript objects to the garbage collector.
    pub(crate) fn adjust_external_memory(self, bytes: i64) {
        let mut total = 0;
        // SAFETY: the pointer is to a local. Where it fails, the collector comes later.
        unsafe { sys::napi_adjust_external_memory(self.0, bytes, &raw mut total) };
    }

    pub(crate) fn object(self) -> Result<Value, Failure> {
        let mut value = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::napi_create_object(self.0, &raw mut value) }, "object")?;
        Ok(Value(value))
    }

    pub(crate) fn undefined(self) -> Value {
        let mut value = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { sys::napi_get_undefined(self.0, &raw mut value) };
        Value(value)
    }

    pub(crate) fn number(self, number: f64) -> Value {
        let mut value = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { sys::napi_create_double(self.0, number, &raw mut value) };
        Value(value)
    }

    pub(crate) fn boolean(self, value: bool) -> Value {
        let mut result = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { sys::napi_get_boolean(self.0, value, &raw mut result) };
        Value(result)
    }

    /// Creates a string. Fast for ASCII.
    pub(crate) fn string(self, text: &str) -> Value {
        if text.is_ascii() {
            return self.latin1(text.as_bytes());
        }
        let mut value = ptr::null_mut();
        // SAFETY: the text is that many bytes of UTF-8.
        unsafe {
            sys::napi_create_string_utf8(
                self.0,
                text.as_ptr().cast(),
                text.len() as isize,
                &raw mut value,
            )
        };
        Value(value)
    }

    /// Creates a string with a character for each byte.
    pub(crate) fn latin1(self, text: &[u8]) -> Value {
        let mut value = ptr::null_mut();
        // SAFETY: the text is that many bytes.
        unsafe {
            sys::napi_create_string_latin1(
                self.0,
                text.as_ptr().cast(),
                text.len() as isize,
                &raw mut value,
            )
        };
        Value(value)
    }

    /// Creates an ArrayBuffer with the concatenated pieces.
    pub(crate) fn array_buffer<'a>(
        self,
        size: usize,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Value, Failure> {
        let (mut value, mut data) = (ptr::null_mut(), ptr::null_mut());
        check(
            // SAFETY: the pointers are to locals.
            unsafe { sys::napi_create_arraybuffer(self.0, size, &raw mut data, &raw mut value) },
            "ArrayBuffer",
        )?;
        let mut at = 0;
        for piece in pieces {
            assert!(at + piece.len() <= size, "invariant: the pieces have the requested size");
            // SAFETY: the new buffer has `size` bytes and no other reference yet, and the
            // assertion keeps the copy within it.
            unsafe {
                ptr::copy_nonoverlapping(piece.as_ptr(), data.cast::<u8>().add(at), piece.len());
            };
            at += piece.len();
        }
        Ok(Value(value))
    }

    /// Creates a buffer shared with JavaScript. It lives as long as the returned reference.
    pub(crate) fn shared_buffer(
        self,
        size: usize,
    ) -> Result<(Value, Persistent, *mut u8), Failure> {
        let (mut value, mut data) = (ptr::null_mut(), ptr::null_mut());
        check(
            // SAFETY: the pointers are to locals.
            unsafe { sys::napi_create_arraybuffer(self.0, size, &raw mut data, &raw mut value) },
            "ArrayBuffer",
        )?;
        Ok((Value(value), self.keep(Value(value))?, data.cast()))
    }

    pub(crate) fn keep(self, value: Value) -> Result<Persistent, Failure> {
        let mut reference = ptr::null_mut();
        check(
            // SAFETY: the value is of this scope; the reference is a strong one, so it can be asked
            // for later.
            unsafe { sys::napi_create_reference(self.0, value.0, 1, &raw mut reference) },
            "reference",
        )?;
        Ok(Persistent(reference))
    }

    pub(crate) fn throw(self, reason: &str) {
        let reason =
            CString::new(reason.replace('\0', "")).expect("invariant: zeros were taken out");
        // SAFETY: the message ends with a zero.
        unsafe { sys::napi_throw_error(self.0, ptr::null(), reason.as_ptr()) };
    }

    /// Opens a scope for the values of `action`, for calls from the event loop.
    pub(crate) fn scope<T>(self, action: impl FnOnce() -> T) -> T {
        let mut scope = ptr::null_mut();
        // SAFETY: the scope is closed below on the same thread, whatever `action` does: a panic
        // ends in the caller's `catch_unwind` and then in the end of the process.
        unsafe { sys::napi_open_handle_scope(self.0, &raw mut scope) };
        let result = action();
        // SAFETY: it is the scope that was opened last.
        unsafe { sys::napi_close_handle_scope(self.0, scope) };
        result
    }

    /// Calls a kept function, and then, if this is the outermost call, runs the queues of ticks and
    /// microtasks.
    ///
    /// Exceptions are uncaught exceptions of the process.
    pub(crate) fn call(self, function: &Persistent, arguments: &[Value]) -> Option<Value> {
        self.scope_for_call(function, arguments)
    }

    fn scope_for_call(self, function: &Persistent, arguments: &[Value]) -> Option<Value> {
        let (mut callee, mut result) = (ptr::null_mut(), ptr::null_mut());
        let mut receiver = ptr::null_mut();
        // SAFETY: the reference is a strong one of this environment, and `Value` is nothing but a
        // `napi_value`, so the arguments are an array of them.
        let status = unsafe {
            sys::napi_get_reference_value(self.0, function.0, &raw mut callee);
            sys::napi_get_global(self.0, &raw mut receiver);
            let values: Vec<_> = arguments.iter().map(|value| value.0).collect();
            sys::napi_make_callback(
                self.0,
                ptr::null_mut(),
                receiver,
                callee,
                values.len(),
                values.as_ptr(),
                &raw mut result,
            )
        };
        if status == sys::Status::napi_ok {
            return Some(Value(result));
        }
        let mut pending = false;
        // SAFETY: the pointers are to locals; the exception is cleared before it is handed on.
        unsafe {
            sys::napi_is_exception_pending(self.0, &raw mut pending);
            if pending {
                let mut exception = ptr::null_mut();
                sys::napi_get_and_clear_last_exception(self.0, &raw mut exception);
                sys::napi_fatal_exception(self.0, exception);
            }
        }
        None
    }

    /// Calls `action` when the environment ends, before its event loop is closed.
    pub(crate) fn on_end(self, action: Box<dyn FnOnce()>) -> Result<(), Failure> {
        unsafe extern "C" fn run(data: *mut c_void) {
            // SAFETY: it is the box that was given below, and the hook runs once.
            let action = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce()>>()) };
            if catch_unwind(AssertUnwindSafe(action)).is_err() {
                end_after_panic();
            }
        }
        let data = Box::into_raw(Box::new(action));
        // SAFETY: `data` stays until the hook takes it.
        check(
            unsafe { sys::napi_add_env_cleanup_hook(self.0, Some(run), data.cast()) },
            "clean-up hook",
        )
    }
}

impl<A> Call<'_, A> {
    pub(crate) fn value(&self, index: usize) -> Value {
        Value(self.arguments[index])
    }

    fn type_of(&self, index: usize) -> sys::napi_valuetype {
        let mut kind = sys::ValueType::napi_undefined;
        // SAFETY: the argument is of this call.
        unsafe { sys::napi_typeof(self.env.0, self.arguments[index], &raw mut kind) };
        kind
    }

    pub(crate) fn is_string(&self, index: usize) -> bool {
        self.type_of(index) == sys::ValueType::napi_string
    }

    pub(crate) fn is_absent(&self, index: usize) -> bool {
        let kind = self.type_of(index);
        kind == sys::ValueType::napi_undefined || kind == sys::ValueType::napi_null
    }

    pub(crate) fn u32(&self, index: usize) -> u32 {
        let mut number = 0;
        // SAFETY: the argument is of this call; what is no number leaves 0.
        unsafe { sys::napi_get_value_uint32(self.env.0, self.arguments[index], &raw mut number) };
        number
    }

    pub(crate) fn f64(&self, index: usize) -> f64 {
        let mut number = 0.0;
        // SAFETY: the argument is of this call; what is no number leaves 0.
        unsafe { sys::napi_get_value_double(self.env.0, self.arguments[index], &raw mut number) };
        number
    }

    pub(crate) fn boolean(&self, index: usize) -> bool {
        let mut value = false;
        // SAFETY: the argument is of this call; what is no boolean leaves false.
        unsafe { sys::napi_get_value_bool(self.env.0, self.arguments[index], &raw mut value) };
        value
    }

    /// Returns a string argument as UTF-8; lone surrogates are replaced.
    pub(crate) fn utf8(&self, index: usize) -> Result<Vec<u8>, Failure> {
        Ok(self.utf8_up_to(index, usize::MAX)?.0)
    }

    /// Returns at most the first `most` bytes, up to a whole character, and the total size.
    fn utf8_up_to(&self, index: usize, most: usize) -> Result<(Vec<u8>, usize), Failure> {
        let mut size = 0;
        // SAFETY: asked without a buffer it says the size.
        let status = unsafe {
            sys::napi_get_value_string_utf8(
                self.env.0,
                self.arguments[index],
                ptr::null_mut(),
                0,
                &raw mut size,
            )
        };
        check(status, "a string is needed")?;
        let whole = size;
        // Node-API writes a zero after the text.
        let mut text = vec![0_u8; size.min(most) + 1];
        // SAFETY: the buffer has the size given.
        let status = unsafe {
            sys::napi_get_value_string_utf8(
                self.env.0,
                self.arguments[index],
                text.as_mut_ptr().cast(),
                text.len(),
                &raw mut size,
            )
        };
        check(status, "a string is needed")?;
        text.truncate(size);
        Ok((text, whole))
    }

    pub(crate) fn string(&self, index: usize) -> Result<String, Failure> {
        String::from_utf8(self.utf8(index)?).map_err(Failure::from)
    }

    /// Returns a copy of a string or Uint8Array; empty for `undefined` and `null`.
    pub(crate) fn bytes(&self, index: usize) -> Result<Bytes, Failure> {
        Ok(self.bytes_up_to(index, usize::MAX)?.0)
    }

    /// Returns a copy of at most the first `most` bytes, whole characters of a string, and the
    /// total size.
    pub(crate) fn bytes_up_to(&self, index: usize, most: usize) -> Result<(Bytes, usize), Failure> {
        if self.is_absent(index) {
            return Ok((Bytes::new(), 0));
        }
        if self.is_string(index) {
            let (text, size) = self.utf8_up_to(index, most)?;
            return Ok((text.into(), size));
        }
        let (mut length, mut data) = (0, ptr::null_mut());
        // SAFETY: the pointers are to locals; the type is one of one-byte elements, which the
        // package's JavaScript sees to, and that is checked.
        let status = unsafe {
            let mut kind = 0;
            let status = sys::napi_get_typedarray_info(
                self.env.0,
                self.arguments[index],
                &raw mut kind,
                &raw mut length,
                &raw mut data,
                ptr::null_mut(),
                ptr::null_mut(),
            );
            if kind == sys::TypedarrayType::uint8_array {
                status
            } else {
                sys::Status::napi_invalid_arg
            }
        };
        check(status, "a string or a Uint8Array is needed")?;
        if length == 0 || data.is_null() {
            return Ok((Bytes::new(), 0));
        }
        // SAFETY: the array has `length` bytes, and no JavaScript runs while they are copied.
        let content = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
        Ok((Bytes::copy_from_slice(&content[..length.min(most)]), length))
    }
}
