//! The entry point of the addon.

#![expect(unsafe_code, reason = "Node-API is a C interface")]

use napi_sys as sys;

use crate::api;
use crate::js::{Env, Failure, Value};

/// Called by Node.js when the addon is loaded into an environment.
#[unsafe(no_mangle)]
unsafe extern "C" fn napi_register_module_v1(
    env: sys::napi_env,
    exports: sys::napi_value,
) -> sys::napi_value {
    // SAFETY: the host is there, because it calls this; the symbols are its own.
    let loaded = unsafe { sys::setup() };
    // The symbols stay loaded as long as the process.
    std::mem::forget(loaded);
    let env = Env::from_raw(env);
    if let Err(Failure(reason)) = api::register(env, Value::from_raw(exports)) {
        env.throw(&reason);
    }
    exports
}
