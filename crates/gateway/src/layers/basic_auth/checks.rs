//! Passwords that are being checked, off the workers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use blocking::unblock;

/// Passwords that wait to be checked, of all layers; more are answered 503. Each holds one of the 500 threads that disks are read on.
pub(super) const WAITING: usize = 64;

/// Of one client, so that one that guesses does not keep the others out.
pub(super) const WAITING_OF_CLIENT: usize = 8;

/// Requests that wait for the check of one password.
const WAITING_FOR_ONE: usize = 1024;

/// Whose passwords wait.
static WAIT: Mutex<Vec<Option<IpAddr>>> = Mutex::new(Vec::new());

/// One is checked at a time: all who guess have one processor's worth together.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The checks of one layer. A browser asks for a page with all that is in it at once; what is checked for all of them is one password.
#[derive(Default)]
pub(super) struct Checks(Mutex<HashMap<Vec<u8>, Arc<Check>>>);

#[derive(Default)]
struct Check(Mutex<State>);

#[derive(Default)]
struct State {
    result: Option<bool>,
    waiting: Vec<Waker>,
}

impl Checks {
    /// What `verify` says, or has said to an earlier request with the same `key` that still waits. `None` if too many wait.
    pub(super) async fn ask(
        self: &Arc<Self>,
        key: Vec<u8>,
        client: Option<IpAddr>,
        verify: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        let (check, conclusion) = self.check(key, client)?;
        if let Some(mut conclusion) = conclusion {
            // It goes on if the client that was first does not wait for it.
            let task = unblock(move || {
                let _one_at_a_time = lock(&ONE_AT_A_TIME);
                conclusion.result = verify();
                drop(conclusion);
            });
            task.detach();
        }
        poll_fn(|cx| {
            let mut state = lock(&check.0);
            if state.result.is_some() {
                return Poll::Ready(state.result);
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                if state.waiting.len() >= WAITING_FOR_ONE {
                    return Poll::Ready(None);
                }
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// The check that there is for this key, or a new one with what has to be brought to an end.
    fn check(self: &Arc<Self>, key: Vec<u8>, client: Option<IpAddr>) -> Option<(Arc<Check>, Option<Conclusion>)> {
        let mut pending = lock(&self.0);
        if let Some(check) = pending.get(&key) {
            return Some((check.clone(), None));
        }
        let seat = Seat::take(client)?;
        let check = Arc::<Check>::default();
        pending.insert(key.clone(), check.clone());
        Some((check.clone(), Some(Conclusion { checks: self.clone(), key, check, result: false, seat: Some(seat) })))
    }
}

/// Tells all who wait, also if the check did not come to an end.
struct Conclusion {
    checks: Arc<Checks>,
    key: Vec<u8>,
    check: Arc<Check>,
    result: bool,
    seat: Option<Seat>,
}

impl Drop for Conclusion {
    fn drop(&mut self) {
        lock(&self.checks.0).remove(&self.key);
        self.seat = None;
        let waiting = {
            let mut state = lock(&self.check.0);
            state.result = Some(self.result);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct Seat(Option<IpAddr>);

impl Seat {
    fn take(client: Option<IpAddr>) -> Option<Self> {
        let mut waiting = lock(&WAIT);
        let of_client = waiting.iter().filter(|one| **one == client).count();
        if waiting.len() >= WAITING || of_client >= WAITING_OF_CLIENT {
            return None;
        }
        waiting.push(client);
        Some(Self(client))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut waiting = lock(&WAIT);
        if let Some(index) = waiting.iter().position(|one| *one == self.0) {
            waiting.swap_remove(index);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::{Context, Wake};
    use std::time::Duration;

    use super::*;

    /// The queue is one for all.
    static ALONE: Mutex<()> = Mutex::new(());

    struct Woken(Sender<()>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> (Poll<F::Output>, Receiver<()>) {
        let (sender, receiver) = channel();
        let waker = Arc::new(Woken(sender)).into();
        (future.poll(&mut Context::from_waker(&waker)), receiver)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn same_password_is_checked_once_for_all_who_wait() {
        let _alone = lock(&ALONE);
        let (checks, count) = (Arc::<Checks>::default(), Arc::<AtomicUsize>::default());
        let (go, gate) = channel::<()>();
        let mut first = pin!(checks.ask(b"key".to_vec(), None, {
            let count = count.clone();
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                gate.recv_timeout(LONG).is_ok()
            }
        }));
        let (polled, first_woken) = poll(first.as_mut());
        assert!(polled.is_pending());
        let mut second = pin!(checks.ask(b"key".to_vec(), None, || panic!("it is being checked")));
        let (polled, second_woken) = poll(second.as_mut());
        assert!(polled.is_pending());
        go.send(()).expect("it waits");
        first_woken.recv_timeout(LONG).expect("woken");
        second_woken.recv_timeout(LONG).expect("woken");
        assert_eq!(poll(first).0, Poll::Ready(Some(true)));
        assert_eq!(poll(second).0, Poll::Ready(Some(true)));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(lock(&checks.0).is_empty());
    }

    #[test]
    fn one_client_leaves_room_for_others_and_all_have_an_end() {
        let _alone = lock(&ALONE);
        let checks = Arc::<Checks>::default();
        let (go, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let ask = |number: usize, client: usize| {
            let gate = gate.clone();
            let client = u32::try_from(client).expect("a small number");
            let asked =
                checks.ask(number.to_be_bytes().to_vec(), Some(IpAddr::V4(client.into())), move || lock(&gate).recv_timeout(LONG).is_ok());
            Box::pin(asked)
        };
        let mut waiting = Vec::new();
        for number in 0..WAITING {
            let mut asked = ask(number, number / WAITING_OF_CLIENT);
            let (polled, woken) = poll(asked.as_mut());
            assert!(polled.is_pending(), "{number}");
            waiting.push((asked, woken));
            if number + 1 == WAITING_OF_CLIENT {
                assert_eq!(poll(ask(1000, 0).as_mut()).0, Poll::Ready(None));
            }
        }
        assert_eq!(poll(ask(1000, 1000).as_mut()).0, Poll::Ready(None));
        for _ in 0..WAITING {
            go.send(()).expect("they wait");
        }
        for (mut asked, woken) in waiting {
            woken.recv_timeout(LONG).expect("woken");
            assert_eq!(poll(asked.as_mut()).0, Poll::Ready(Some(true)));
        }
        assert!(lock(&WAIT).is_empty());
    }

    #[test]
    fn check_that_does_not_end_well_is_a_no() {
        let _alone = lock(&ALONE);
        let checks = Arc::<Checks>::default();
        let mut asked = pin!(checks.ask(b"key".to_vec(), None, || panic!("for the test")));
        // The other thread may be done before this one looks.
        let said = match poll(asked.as_mut()) {
            (Poll::Pending, woken) => {
                woken.recv_timeout(LONG).expect("woken");
                poll(asked).0
            }
            (said, _) => said,
        };
        assert_eq!(said, Poll::Ready(Some(false)));
        assert!(lock(&WAIT).is_empty());
    }
}
