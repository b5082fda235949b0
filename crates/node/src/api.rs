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

use crate::addon::Addon;
use crate::certificates;
use crate::js::{Call, Env, Failure, Native, Value};

/// Fills the exports of an environment, and sees to it that nothing outlives it.
pub(crate) fn register(env: Env, exports: Value) -> Result<(), Failure> {
    let addon = Addon::new(env, exports)?;
    let environment = certificates::introduce(std::rc::Rc::downgrade(&addon));
    env.set(exports, "environment", env.number(environment as f64))?;
    for (name, native) in functions() {
        env.function(exports, name, &addon, native)?;
    }
    env.on_end(Box::new(move || {
        let listenings: Vec<_> = addon.listenings.borrow().values().cloned().collect();
        listenings.iter().for_each(crate::listening::Listening::release);
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

/// `setUp(dispatch, missingServerName)`: the functions that this side calls.
fn set_up(call: &Call<'_>) -> Result<Value, Failure> {
    let is_new = call.addon.dispatch.set(call.env.keep(call.value(0))?).is_ok();
    if !is_new || call.addon.missing_name.set(call.env.keep(call.value(1))?).is_err() {
        return Err("the addon has been set up already".into());
    }
    Ok(call.env.undefined())
}

/// `flush()`: carries out what stands in the shared memory.
fn flush(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    Ok(call.env.undefined())
}
