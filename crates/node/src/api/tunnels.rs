//! Functions for connections and streams upgraded to another protocol. The first argument of each
//! is the tunnel's number, unless noted.

use std::rc::Rc;

use bytes::Bytes;
use pronghorn_engine::Body;

use crate::addon::{Call, Native};
use crate::exchange::UpgradeRequest;
use crate::js::{Failure, Value};
use crate::tunnel::{Ending, Tunnel, ends};

pub(super) const FUNCTIONS: [(&str, Native); 8] = [
    ("upgradeProtocol", upgrade_protocol),
    ("tunnelOpen", open),
    ("tunnelRead", read),
    ("tunnelTake", take),
    ("tunnelWrite", write),
    ("tunnelFinish", finish),
    ("tunnelEnd", end),
    ("openTunnels", open_tunnels),
];

fn tunnel(call: &Call<'_>) -> Option<Rc<Tunnel>> {
    call.addon.tunnels.borrow().get(&call.u32(0)).cloned()
}

/// `upgradeProtocol(slot)`: returns the first protocol that the request asks for, or `undefined`.
fn upgrade_protocol(call: &Call<'_>) -> Result<Value, Failure> {
    let protocol = call.addon.with_exchange(call.u32(0), |exchange| {
        exchange
            .upgrade
            .as_ref()
            .map_or(call.env.undefined(), |upgrade| call.env.string(upgrade.protocol()))
    });
    Ok(protocol.ok_or("the exchange has ended")?)
}

/// `tunnelOpen(slot)`: accepts the upgrade with the response fields written so far. Returns the
/// number of the tunnel, or `undefined` if the client has left.
fn open(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let slot = call.u32(0);
    let listener = call.addon.with_exchange(slot, |exchange| exchange.listener);
    let (Some(listener), Some(asked)) = (listener, call.addon.take_upgrade(slot)) else {
        return Ok(call.env.undefined());
    };
    let UpgradeRequest { responder, body, fields, .. } = asked;
    let handle = responder.handle().clone();
    let (number, tunnel) = call.addon.add_tunnel(listener, handle.clone());
    let (outgoing, reader) = ends(call.addon.clone(), number, &tunnel, body);
    responder.upgrade(fields, Body::stream(outgoing).with_abort_handle(tunnel.cut()));
    handle.spawn(reader);
    Ok(call.env.number(number.into()))
}

/// `tunnelRead(tunnel)`: requests an event for available bytes.
fn read(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(tunnel) = tunnel(call) {
        tunnel.read();
    }
    Ok(call.env.undefined())
}

/// `tunnelTake(tunnel)`: returns the received bytes as an ArrayBuffer.
fn take(call: &Call<'_>) -> Result<Value, Failure> {
    let pieces = tunnel(call).map(|tunnel| tunnel.take()).unwrap_or_default();
    call.env
        .array_buffer(pieces.iter().map(Bytes::len).sum(), pieces.iter().map(|piece| &piece[..]))
}

/// `tunnelWrite(tunnel, content)`: sends bytes. Returns whether there is capacity for more; if not,
/// an event follows when there is.
fn write(call: &Call<'_>) -> Result<Value, Failure> {
    let Some(tunnel) = tunnel(call) else { return Ok(call.env.boolean(true)) };
    Ok(call.env.boolean(tunnel.write(call.bytes(1)?)))
}

/// `tunnelFinish(tunnel)`: ends the sending direction. An event reports that everything was sent.
fn finish(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(tunnel) = tunnel(call) {
        tunnel.finish(Ending::Complete);
    }
    Ok(call.env.undefined())
}

/// `tunnelEnd(tunnel, reset)`: ends a tunnel for JavaScript. Buffered bytes are still sent, unless
/// it is reset or the client is slow.
fn end(call: &Call<'_>) -> Result<Value, Failure> {
    let ended = call.addon.tunnels.borrow_mut().remove(&call.u32(0));
    if let Some(tunnel) = ended {
        tunnel.end(if call.boolean(1) { Ending::Reset } else { Ending::Complete });
    }
    Ok(call.env.undefined())
}

/// `openTunnels()`: returns the number of tunnels that JavaScript or the engine holds.
fn open_tunnels(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(call.addon.open_tunnels() as f64))
}
