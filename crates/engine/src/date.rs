//! The `date` field of responses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;

/// The value of the `date` field, made once a second.
pub(crate) struct Date {
    /// Without an atomic count, since each response shares it.
    value: RefCell<Rc<HeaderValue>>,
    stale_at: Cell<Instant>,
}

impl Date {
    pub(crate) fn new(now: Instant) -> Self {
        let date = Self {
            value: RefCell::new(Rc::new(HeaderValue::from_static(""))),
            stale_at: Cell::new(now),
        };
        date.refresh(now);
        date
    }

    /// Pins the value, so that two runs of a simulation send the same bytes.
    #[cfg(test)]
    pub(crate) fn pin(&self, now: Instant) {
        *self.value.borrow_mut() =
            Rc::new(HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        self.stale_at.set(now + Duration::from_secs(1 << 32));
    }

    pub(crate) fn value(&self, now: Instant) -> Rc<HeaderValue> {
        if now >= self.stale_at.get() {
            self.refresh(now);
        }
        self.value.borrow().clone()
    }

    fn refresh(&self, now: Instant) {
        let wall = SystemTime::now();
        let past_second =
            wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let left = Duration::from_secs(1).saturating_sub(Duration::from_nanos(past_second.into()));
        self.stale_at.set(now + left);
        let text = httpdate::fmt_http_date(wall);
        *self.value.borrow_mut() =
            Rc::new(HeaderValue::from_str(&text).expect("invariant: a date is visible ASCII"));
    }
}
