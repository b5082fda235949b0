//! The functions that the package's JavaScript calls.

#![expect(clippy::unnecessary_wraps, reason = "all of them have one type")]

mod apps;
mod development;
mod frameworks;
mod requests;
mod responses;
mod sessions;
mod sockets;
mod tunnels;

use crate::addon::{Addon, Call, Native};
use crate::certificates;
use crate::js::{Env, Failure, Value};

/// Fills the exports of an environment, and registers its clean-up.
pub(crate) fn register(env: Env, exports: Value) -> Result<(), Failure> {
    let addon = Addon::new(env, exports)?;
    let state = std::rc::Rc::downgrade(&addon);
    let environment = certificates::introduce(state);
    env.set(exports, "environment", env.number(environment as f64))?;
    for (name, native) in functions() {
        env.function(exports, name, &addon, native)?;
    }
    env.on_end(Box::new(move || {
        let listeners: Vec<_> = addon.listeners.borrow().values().cloned().collect();
        listeners.iter().for_each(crate::listener::Listener::release);
        addon.apps.borrow_mut().clear();
    }))
}

fn functions() -> impl Iterator<Item = (&'static str, Native)> {
    let own: [(&'static str, Native); 2] = [("setUp", set_up), ("flush", flush)];
    own.into_iter()
        .chain(apps::FUNCTIONS)
        .chain(development::FUNCTIONS)
        .chain(requests::FUNCTIONS)
        .chain(responses::FUNCTIONS)
        .chain(frameworks::FUNCTIONS)
        .chain(sockets::FUNCTIONS)
        .chain(sessions::FUNCTIONS)
        .chain(tunnels::FUNCTIONS)
}

/// `setUp(dispatch, missingServerName)`: sets the JavaScript functions that the addon calls.
fn set_up(call: &Call<'_>) -> Result<Value, Failure> {
    let is_new = call.addon.dispatch.set(call.env.keep(call.value(0))?).is_ok();
    if !is_new || call.addon.missing_name.set(call.env.keep(call.value(1))?).is_err() {
        return Err("the addon is set up already".into());
    }
    Ok(call.env.undefined())
}

/// `flush()`: applies the operations in the shared memory.
fn flush(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    Ok(call.env.undefined())
}
