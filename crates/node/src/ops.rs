//! Operations that JavaScript writes to the shared memory; see
//! `packages/pronghorn/lib/operations.js`.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{Responder, Response};

use crate::addon::Addon;
use crate::exchange::{Exchange, UpgradeRequest};

const END: i32 = 1;
const END_AS_BEFORE: i32 = 2;
const STATUS: i32 = 3;
const FIELD: i32 = 4;
const WATCH: i32 = 5;
const RELEASE: i32 = 6;
const ABORT: i32 = 7;
const END_WITHOUT_CONTENT: i32 = 8;
const FIELD_AS_BEFORE: i32 = 9;
const READ_ON: i32 = 10;
const CLEAR: i32 = 11;

/// Flag of `END` that keeps the content for `END_AS_BEFORE`, and of `FIELD` that keeps the value
/// for `FIELD_AS_BEFORE`.
const KEEP: i32 = 2;
const CLOSE: i32 = 1;

/// Maximum size in bytes of the content kept for each route.
const KEPT_BYTES: usize = 4 << 10;

impl Addon {
    /// Applies the operations that JavaScript has written.
    pub(crate) fn apply_answers(self: &Rc<Self>) {
        self.shared.take_answers(|numbers, bytes| {
            let mut numbers = numbers.iter().copied();
            let mut bytes = bytes;
            let mut take = |length: i32| {
                let (taken, rest) =
                    bytes.split_at(usize::try_from(length).unwrap_or(0).min(bytes.len()));
                bytes = rest;
                taken
            };
            let mut next = || numbers.next();
            while let (Some(operation), Some(slot)) = (next(), next()) {
                let slot = slot as u32;
                let mut argument = || next().unwrap_or(0);
                match operation {
                    END => {
                        let (flags, kept, length) = (argument(), argument(), argument());
                        let content = Bytes::copy_from_slice(take(length));
                        if flags & KEEP != 0 && content.len() <= KEPT_BYTES {
                            self.repeated_bodies.borrow_mut().insert(kept as u32, content.clone());
                        }
                        self.end(slot, content, flags & CLOSE != 0);
                    }
                    END_AS_BEFORE => {
                        let content = self
                            .repeated_bodies
                            .borrow()
                            .get(&(argument() as u32))
                            .cloned()
                            .unwrap_or_default();
                        self.end(slot, content, false);
                    }
                    STATUS => {
                        let status = StatusCode::from_u16(argument() as u16)
                            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                        self.with_exchange(slot, |exchange| exchange.status = status);
                    }
                    FIELD => {
                        let (number, flags) = (argument() as usize, argument());
                        let value = HeaderValue::from_bytes(take(argument()));
                        let mut names = self.names.borrow_mut();
                        // JavaScript has checked both.
                        if let (Some((name, kept)), Ok(value)) = (names.get_mut(number), value) {
                            if flags & KEEP != 0 {
                                *kept = Some(value.clone());
                            }
                            self.with_exchange(slot, |exchange| {
                                exchange.fields.append(&*name, value)
                            });
                        }
                    }
                    FIELD_AS_BEFORE => {
                        if let Some((name, Some(value))) =
                            self.names.borrow().get(argument() as usize)
                        {
                            self.with_exchange(slot, |exchange| {
                                exchange.fields.append(name, value.clone())
                            });
                        }
                    }
                    CLEAR => {
                        self.with_exchange(slot, |exchange| exchange.fields.clear()).unwrap_or(());
                    }
                    WATCH => {
                        self.with_exchange(slot, Exchange::drop_head);
                        self.watch(slot);
                    }
                    READ_ON => {
                        // Before the responder is taken, because it spawns the future.
                        self.watch(slot);
                        self.with_exchange(slot, |exchange| exchange.reads_on = true);
                    }
                    RELEASE | ABORT => {
                        self.with_exchange(slot, |exchange| exchange.reads_on = false);
                        if let Some(responder) = self.finish(slot, Exchange::abort) {
                            responder.abort();
                        }
                    }
                    END_WITHOUT_CONTENT => {
                        let (flags, low, high) = (argument(), argument(), argument());
                        let reported = (high >= 0)
                            .then(|| u64::from(low as u32) | (u64::from(high as u32) << 32));
                        let close = flags & CLOSE != 0;
                        self.answer(slot, |exchange, response| {
                            exchange.end_without_content(reported, close, response)
                        });
                    }
                    _ => return,
                }
            }
        });
        self.free_lingering();
    }

    pub(crate) fn end(&self, slot: u32, content: Bytes, close: bool) {
        self.answer(slot, |exchange, response| exchange.end(content, close, response));
    }

    /// Ends an exchange with `end`, which fills the response.
    fn answer(
        &self,
        slot: u32,
        end: impl FnOnce(&mut Exchange, &mut Response) -> Option<Responder>,
    ) {
        let mut response = Response::new(StatusCode::OK);
        if let Some(responder) = self.finish(slot, |exchange| end(exchange, &mut response)) {
            responder.send(response);
        }
    }

    /// Ends an exchange with `end`. Its request stays readable while its handler runs, and its
    /// content possibly longer.
    pub(crate) fn finish<T>(
        &self,
        slot: u32,
        end: impl FnOnce(&mut Exchange) -> Option<T>,
    ) -> Option<T> {
        if self.shared.current() == Some(slot) {
            self.free_lingering();
            self.lingering.set(Some(slot));
        } else if !self.reads_on(slot)? {
            let mut exchange = self.take(slot)?;
            let ended = end(&mut exchange);
            self.recycle(exchange);
            return ended;
        }
        self.with_exchange(slot, end)?
    }

    fn reads_on(&self, slot: u32) -> Option<bool> {
        self.with_exchange(slot, |exchange| exchange.reads_on)
    }

    /// Ends an exchange to upgrade it. An exchange without an upgrade request, or that was
    /// answered, is not changed.
    pub(crate) fn take_upgrade(&self, slot: u32) -> Option<UpgradeRequest> {
        let can = self.with_exchange(slot, |exchange| {
            exchange.upgrade.is_some() && exchange.responder.is_some()
        })?;
        if can { self.finish(slot, Exchange::take_upgrade) } else { None }
    }

    /// Frees the exchange that was ended while its handler ran, once the handler has returned.
    fn free_lingering(&self) {
        if let Some(slot) = self.lingering.get()
            && self.shared.current() != Some(slot)
        {
            self.lingering.set(None);
            if self.reads_on(slot) != Some(true)
                && let Some(exchange) = self.take(slot)
            {
                self.recycle(exchange);
            }
        }
    }
}
