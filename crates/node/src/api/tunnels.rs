//! What JavaScript does with connections and streams that go on in another protocol. Each function takes the tunnel's number first, if nothing
//! else is said.

use std::rc::Rc;

use bytes::Bytes;
use pronghorn_engine::Body;

use crate::exchange::Asked;
use crate::js::{Call, Failure, Native, Value};
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

/// `upgradeProtocol(slot)`: what the request asks to go on in, the first of what it names; nothing if it does not.
fn upgrade_protocol(call: &Call<'_>) -> Result<Value, Failure> {
    let protocol = call.addon.with_exchange(call.u32(0), |exchange| {
        exchange.upgrade.as_ref().map_or(call.env.undefined(), |upgrade| call.env.string(upgrade.protocol()))
    });
    Ok(protocol.ok_or("the exchange has ended")?)
}

/// `tunnelOpen(slot)`: grants the upgrade with the fields that were written of the answer. The number of the tunnel, or nothing where there is
/// none to be had, since the client has left.
fn open(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let slot = call.u32(0);
    let listening = call.addon.with_exchange(slot, |exchange| exchange.listening);
    let (Some(listening), Some(asked)) = (listening, call.addon.take_upgrade(slot)) else { return Ok(call.env.undefined()) };
    let Asked { responder, body, fields, .. } = asked;
    let handle = responder.handle().clone();
    let (number, tunnel) = call.addon.add_tunnel(listening, handle.clone());
    let (outgoing, reader) = ends(call.addon, number, &tunnel, body);
    responder.upgrade(fields, Body::stream(outgoing).with_cut(tunnel.cut()));
    handle.spawn(reader);
    Ok(call.env.number(number.into()))
}

/// `tunnelRead(tunnel)`: an event says when there is something to take.
fn read(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(tunnel) = tunnel(call) {
        tunnel.read();
    }
    Ok(call.env.undefined())
}

/// `tunnelTake(tunnel)`: an ArrayBuffer with what has come.
fn take(call: &Call<'_>) -> Result<Value, Failure> {
    let pieces = tunnel(call).map(|tunnel| tunnel.take()).unwrap_or_default();
    call.env.array_buffer(pieces.iter().map(Bytes::len).sum(), pieces.iter().map(|piece| &piece[..]))
}

/// `tunnelWrite(tunnel, content)`: whether there is room for more; if not, an event says when there is.
fn write(call: &Call<'_>) -> Result<Value, Failure> {
    let Some(tunnel) = tunnel(call) else { return Ok(call.env.boolean(true)) };
    Ok(call.env.boolean(tunnel.write(call.bytes(1)?)))
}

/// `tunnelFinish(tunnel)`: nothing more is sent. An event says when all has left.
fn finish(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(tunnel) = tunnel(call) {
        tunnel.finish(Ending::Complete);
    }
    Ok(call.env.undefined())
}

/// `tunnelEnd(tunnel, reset)`: JavaScript is done with it. What was written is sent all the same, unless it is reset, or the client is slow to take
/// it.
fn end(call: &Call<'_>) -> Result<Value, Failure> {
    let ended = call.addon.tunnels.borrow_mut().remove(&call.u32(0));
    if let Some(tunnel) = ended {
        tunnel.end(if call.boolean(1) { Ending::Reset } else { Ending::Complete });
    }
    Ok(call.env.undefined())
}

/// `openTunnels()`: how many there are that JavaScript or the engine looks after.
fn open_tunnels(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(call.addon.open_tunnels() as f64))
}
