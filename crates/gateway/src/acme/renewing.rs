//! The thread that orders: one task for each name, which waits until its certificate is due.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::authority::{Authority, Failure};
use super::challenges::Challenges;
use super::schedule::Schedule;
use super::slot::{OrderState, Slot};
use super::store::{Kept, Store};
use super::{Settings, Tell, Wanted, order};

/// Orders that run at the same time.
const AT_ONCE: usize = 4;
/// A wait is cut into pieces of this, so that machines that slept and clocks that were set are noticed.
const PIECE: Duration = Duration::from_mins(10);
/// Between two looks at whether another process has ordered what we want.
const OTHERS: Duration = Duration::from_secs(1);
/// How often an authority is asked when it wants a renewal, whatever it says itself.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_hours(1), Duration::from_hours(24));
/// One order, with all of its waits.
const ORDER_TIME: Duration = Duration::from_mins(10);

/// Starts the thread. It ends, whatever it does, when what is returned is dropped.
pub(super) fn start(challenges: Arc<Challenges>, tell: Arc<Tell>) -> io::Result<UnboundedSender<Wanted>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (wishes, wished) = unbounded_channel();
    let run = move || LocalSet::new().block_on(&runtime, serve(wished, challenges, tell));
    std::thread::Builder::new().name("acme".to_owned()).spawn(run)?;
    Ok(wishes)
}

/// What the tasks of all names share.
struct Shared {
    settings: Arc<Settings>,
    store: Arc<Store>,
    challenges: Arc<Challenges>,
    at_once: Arc<Semaphore>,
    tell: Arc<Tell>,
}

struct Task {
    slot: Arc<Slot>,
    settings: Arc<Settings>,
    running: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn serve(mut wished: UnboundedReceiver<Wanted>, challenges: Arc<Challenges>, tell: Arc<Tell>) {
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks: HashMap<String, Task> = HashMap::new();
    while let Some(Wanted { settings, store, slots }) = wished.recv().await {
        let stays = |task: &Task| task.settings == settings && slots.iter().any(|slot| Arc::ptr_eq(slot, &task.slot));
        tasks.retain(|_, task| stays(task));
        let shared = Rc::new(Shared {
            settings: settings.clone(),
            store,
            challenges: challenges.clone(),
            at_once: at_once.clone(),
            tell: tell.clone(),
        });
        for slot in slots {
            tasks.entry(slot.host().to_owned()).or_insert_with(|| Task {
                running: spawn_local(look_after(slot.clone(), shared.clone())),
                slot,
                settings: settings.clone(),
            });
        }
    }
}

/// Keeps the certificate of one name in order for ever.
async fn look_after(slot: Arc<Slot>, shared: Rc<Shared>) {
    let host = slot.host();
    let refusals = shared.store.refusals(host);
    let mut schedule = Schedule::new(rand::random(), shared.settings.challenges.len(), refusals);
    let mut ask_window = SystemTime::UNIX_EPOCH;
    loop {
        let now = SystemTime::now();
        if slot.lifetime().is_some() && ask_window <= now {
            let (window, again) = shared.window(&slot).await;
            schedule.set_window(window);
            ask_window = now + again.clamp(ASK_AGAIN.0, ASK_AGAIN.1);
        }
        let due = schedule.due(now, slot.lifetime());
        slot.set_state(|state| (state.next, state.failures, state.is_running) = (Some(due), schedule.failures(), false));
        if let Ok(wait) = due.duration_since(now)
            && !wait.is_zero()
        {
            tokio::time::sleep(wait.min(PIECE)).await;
            continue;
        }
        let Ok(_place) = shared.at_once.acquire().await else { return };
        let ordered = match shared.store.lock(host) {
            Ok(None) => {
                tokio::time::sleep(OTHERS).await;
                continue;
            }
            Ok(Some(lock)) => {
                slot.set_state(|state| state.is_running = true);
                let ordered = shared.renew(&slot, &schedule).await;
                drop(lock);
                ordered
            }
            Err(error) => Err(Failure::unreachable(format!("certificates cannot be kept: {error}"))),
        };
        match ordered {
            Ok(()) => {
                schedule.on_success();
                shared.store.keep_refusals(host, schedule.refusals());
                slot.set_state(|state| *state = OrderState::default());
                ask_window = SystemTime::UNIX_EPOCH;
            }
            Err(failure) => shared.on_failure(&slot, &mut schedule, failure),
        }
    }
}

impl Shared {
    /// Orders a certificate and shows it, unless another process has got one meanwhile.
    async fn renew(&self, slot: &Slot, schedule: &Schedule) -> Result<(), Failure> {
        let host = slot.host();
        if let Ok(Some(kept)) = self.store.certificate(host)
            && slot.lifetime().is_none_or(|shown| shown.until < kept.lifetime.until)
            && schedule.due(SystemTime::now(), Some(kept.lifetime)) > SystemTime::now()
        {
            slot.show(kept);
            (self.tell)(&format!("the certificate of {host} was renewed by another process"));
            return Ok(());
        }
        let late = |_| Failure::refused("the order did not come to an end in time");
        let pem = tokio::time::timeout(ORDER_TIME, self.order(slot, schedule)).await.map_err(late)??;
        let unusable = |error: &dyn std::fmt::Display| Failure::refused(format!("the authority's certificate cannot be used: {error}"));
        let kept = Kept::from_pem(pem.as_bytes()).map_err(|error| unusable(&error))?;
        let is_kept = self.store.keep_certificate(host, &pem);
        let until = humantime::format_rfc3339_seconds(kept.lifetime.until);
        slot.show(kept);
        (self.tell)(&format!("{host} has a certificate, valid until {until}"));
        if let Err(error) = is_kept {
            (self.tell)(&format!("error: the certificate of {host} cannot be kept for the next start: {error}"));
        }
        Ok(())
    }

    async fn order(&self, slot: &Slot, schedule: &Schedule) -> Result<String, Failure> {
        let authority = Authority::connect(&self.settings, &self.store).await?;
        let ordered = order::order(&authority, &self.settings, &self.challenges, slot, schedule.challenge()).await;
        ordered.map_err(|failure| {
            if failure.reason.ends_with("(accountDoesNotExist)") {
                self.store.forget_account();
            }
            Failure { wait: authority.asked_to_wait(), ..failure }
        })
    }

    /// When the authority wants the certificate to be renewed, and how long that may be believed.
    async fn window(&self, slot: &Slot) -> (Option<(SystemTime, SystemTime)>, Duration) {
        let ask = async {
            let _place = self.at_once.acquire().await.ok()?;
            // Nobody needs an account for this alone.
            drop(self.store.account()?);
            let authority = Authority::connect(&self.settings, &self.store).await.ok()?;
            order::window(&authority, slot).await
        };
        match tokio::time::timeout(ORDER_TIME, ask).await {
            Ok(Some((window, again))) => (Some(window), again),
            _ => (None, ASK_AGAIN.0),
        }
    }

    fn on_failure(&self, slot: &Slot, schedule: &mut Schedule, failure: Failure) {
        let Failure { cause, reason, wait } = failure;
        let now = SystemTime::now();
        let wait = Duration::from_secs(schedule.on_failure(now, cause, wait).as_secs());
        self.store.keep_refusals(slot.host(), schedule.refusals());
        let what = match slot.lifetime() {
            Some(lifetime) if lifetime.until > now => {
                format!(
                    "the certificate of {}, valid until {}, is not renewed",
                    slot.host(),
                    humantime::format_rfc3339_seconds(lifetime.until)
                )
            }
            _ => format!("there is no certificate for {}", slot.host()),
        };
        (self.tell)(&format!("error: {what}: {reason}; the next try is in {}", humantime::format_duration(wait)));
        slot.set_state(|state| state.error = Some(reason));
    }
}
