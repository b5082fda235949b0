//! What JavaScript writes into the shared memory, see `packages/pronghorn/lib/answers.js`.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{Responder, Response};

use crate::addon::Addon;
use crate::exchange::{Asked, Exchange};

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

/// `END` with this keeps the content for `END_AS_BEFORE`, and `FIELD` the value for `FIELD_AS_BEFORE`.
const KEEP: i32 = 2;
const CLOSE: i32 = 1;

/// How much content is kept to be sent again, for each route.
const KEPT_BYTES: usize = 4 << 10;

impl Addon {
    /// Carries out what JavaScript has written.
    pub(crate) fn apply_answers(self: &Rc<Self>) {
        self.shared.take_answers(|numbers, bytes| {
            let mut numbers = numbers.iter().copied();
            let mut bytes = bytes;
            let mut take = |length: i32| {
                let (taken, rest) = bytes.split_at(usize::try_from(length).unwrap_or(0).min(bytes.len()));
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
                            self.kept.borrow_mut().insert(kept as u32, content.clone());
                        }
                        self.end(slot, content, flags & CLOSE != 0);
                    }
                    END_AS_BEFORE => {
                        let content = self.kept.borrow().get(&(argument() as u32)).cloned().unwrap_or_default();
                        self.end(slot, content, false);
                    }
                    STATUS => {
                        let status = StatusCode::from_u16(argument() as u16).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
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
                            self.with_exchange(slot, |exchange| exchange.fields.append(&*name, value));
                        }
                    }
                    FIELD_AS_BEFORE => {
                        if let Some((name, Some(value))) = self.names.borrow().get(argument() as usize) {
                            self.with_exchange(slot, |exchange| exchange.fields.append(name, value.clone()));
                        }
                    }
                    CLEAR => self.with_exchange(slot, |exchange| exchange.fields.clear()).unwrap_or(()),
                    WATCH => {
                        self.with_exchange(slot, Exchange::forget_request);
                        self.watch(slot);
                    }
                    READ_ON => {
                        // While the responder is there to spawn the future.
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
                        let reported = (high >= 0).then(|| u64::from(low as u32) | (u64::from(high as u32) << 32));
                        let close = flags & CLOSE != 0;
                        self.answer(slot, |exchange, response| exchange.end_without_content(reported, close, response));
                    }
                    _ => return,
                }
            }
        });
        self.let_go();
    }

    pub(crate) fn end(&self, slot: u32, content: Bytes, close: bool) {
        self.answer(slot, |exchange, response| exchange.end(content, close, response));
    }

    /// Ends an exchange by `end`, which fills the response.
    fn answer(&self, slot: u32, end: impl FnOnce(&mut Exchange, &mut Response) -> Option<Responder>) {
        let mut response = Response::new(StatusCode::OK);
        if let Some(responder) = self.finish(slot, |exchange| end(exchange, &mut response)) {
            responder.send(response);
        }
    }

    /// Ends an exchange by `end`. Its request can be read as long as its handler runs, and its content perhaps longer.
    pub(crate) fn finish<T>(&self, slot: u32, end: impl FnOnce(&mut Exchange) -> Option<T>) -> Option<T> {
        if self.shared.current() == Some(slot) {
            self.let_go();
            self.lingering.set(Some(slot));
        } else if !self.reads_on(slot)? {
            let mut exchange = self.take(slot)?;
            let ended = end(&mut exchange);
            self.keep(exchange);
            return ended;
        }
        self.with_exchange(slot, end)?
    }

    fn reads_on(&self, slot: u32) -> Option<bool> {
        self.with_exchange(slot, |exchange| exchange.reads_on)
    }

    /// Ends an exchange for what is to be spoken instead. One that asks for nothing else, or was answered, stays as it is.
    pub(crate) fn take_upgrade(&self, slot: u32) -> Option<Asked> {
        let can = self.with_exchange(slot, |exchange| exchange.upgrade.is_some() && exchange.responder.is_some())?;
        if can { self.finish(slot, Exchange::take_upgrade) } else { None }
    }

    /// Forgets the request that was ended while its handler ran, when it runs no more.
    fn let_go(&self) {
        if let Some(slot) = self.lingering.get()
            && self.shared.current() != Some(slot)
        {
            self.lingering.set(None);
            if self.reads_on(slot) != Some(true)
                && let Some(exchange) = self.take(slot)
            {
                self.keep(exchange);
            }
        }
    }
}
