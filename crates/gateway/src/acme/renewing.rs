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
use super::schedule::{Asked, Cause, Patience, Schedule};
use super::slot::{OrderState, Slot};
use super::store::{Kept, Store};
use super::{Settings, Tell, Wanted, order};

/// Orders that run at the same time.
const AT_ONCE: usize = 4;
/// A wait is cut into pieces of this, so that machines that slept and clocks that were set are noticed.
const PIECE: Duration = Duration::from_mins(10);
/// Between two looks at whether another process has ordered what we want.
const OTHERS: Duration = Duration::from_secs(1);
/// Between two tries to keep a certificate that the disk refused.
const KEEP_AGAIN: Duration = Duration::from_secs(10);
/// Behind when the next try is.
const ASKED_OF_ALL: &str = ", as the authority asks, for other names too";
/// The same where the authority says nothing.
const FOR_ALL: &str = ", for other names too";
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
    patience: Rc<Patience>,
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
    let mut patience: (String, Rc<Patience>) = Default::default();
    while let Some(Wanted { settings, store, slots }) = wished.recv().await {
        let stays = |task: &Task| task.settings == settings && slots.iter().any(|slot| Arc::ptr_eq(slot, &task.slot));
        // What was refused by other settings says nothing of these.
        let changed: Vec<_> = tasks.values().filter(|task| task.settings != settings).map(|task| task.slot.host().to_owned()).collect();
        tasks.retain(|_, task| stays(task));
        if patience.0 != settings.acme.directory {
            patience = (settings.acme.directory.clone(), Rc::default());
        }
        let shared = Rc::new(Shared {
            settings: settings.clone(),
            store,
            challenges: challenges.clone(),
            at_once: at_once.clone(),
            patience: patience.1.clone(),
            tell: tell.clone(),
        });
        for slot in slots {
            if changed.iter().any(|host| host == slot.host()) {
                slot.retry.notify_one();
            }
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
    // What is shown, but not on the disk.
    let mut unkept = None;
    // Somebody has said that what was wrong is right now: the authority may be asked once, even if it wanted to be left alone.
    let mut is_told = false;
    loop {
        unkept = unkept.filter(|pem: &String| !shared.is_kept_now(&slot, pem));
        let now = SystemTime::now();
        let patience = shared.patience.until(now).filter(|_| !is_told);
        if slot.lifetime().is_some() && ask_window <= now && patience.is_none() {
            let (window, again) = shared.window(&slot).await;
            schedule.set_window(window);
            ask_window = now + again.clamp(ASK_AGAIN.0, ASK_AGAIN.1);
        }
        let due = schedule.due(now, slot.lifetime()).max(patience.unwrap_or(SystemTime::UNIX_EPOCH));
        slot.set_state(|state| (state.next, state.failures, state.is_running) = (Some(due), schedule.failures(), false));
        if let Ok(wait) = due.duration_since(now)
            && !wait.is_zero()
        {
            let wait = wait.min(if unkept.is_some() { KEEP_AGAIN } else { PIECE });
            if tokio::time::timeout(wait, slot.retry.notified()).await.is_ok() {
                schedule.forgive();
                shared.patience.forgive();
                // Where that is not possible it counts for this process all the same.
                drop(shared.store.keep_refusals(host, schedule.refusals()));
                is_told = true;
            }
            continue;
        }
        let Ok(place) = shared.at_once.acquire().await else { return };
        let now = SystemTime::now();
        if !is_told && shared.patience.until(now).is_some() {
            continue;
        }
        // It is kept until what came of the order is written: whoever has it next looks at that first.
        let lock = match shared.store.lock(host) {
            Ok(None) => {
                drop(place);
                tokio::time::sleep(OTHERS).await;
                continue;
            }
            lock => lock,
        };
        let ordered = match &lock {
            Ok(_) if schedule.on_others(now, shared.store.refusals(host)) => continue,
            Ok(_) => {
                slot.set_state(|state| state.is_running = true);
                shared.renew(&slot, &schedule).await
            }
            Err(error) => Err(Failure::passing(format!("certificates cannot be kept: {error}"))),
        };
        match ordered {
            Ok(not_kept) => {
                unkept = not_kept;
                shared.patience.on_answer();
                schedule.on_success();
                drop(shared.store.keep_refusals(host, schedule.refusals()));
                slot.set_state(|state| *state = OrderState::default());
                ask_window = SystemTime::UNIX_EPOCH;
            }
            Err(failure) => shared.on_failure(&slot, &mut schedule, failure),
        }
        is_told = false;
    }
}

impl Shared {
    /// Orders a certificate and shows it, unless another process has got one meanwhile. What could not be kept comes back.
    async fn renew(&self, slot: &Slot, schedule: &Schedule) -> Result<Option<String>, Failure> {
        let host = slot.host();
        if let Ok(Some(kept)) = self.store.certificate(host)
            && slot.lifetime().is_none_or(|shown| shown.until < kept.lifetime.until)
            && schedule.due(SystemTime::now(), Some(kept.lifetime)) > SystemTime::now()
        {
            slot.show(kept);
            (self.tell)(&format!("the certificate of {host} was renewed by another process"));
            return Ok(None);
        }
        let late = |_| Failure::refused("the order did not come to an end in time");
        let pem = tokio::time::timeout(ORDER_TIME, self.order(slot, schedule)).await.map_err(late)??;
        let unusable = |error: &dyn std::fmt::Display| Failure::refused(format!("the authority's certificate cannot be used: {error}"));
        let kept = Kept::from_pem(pem.as_bytes()).map_err(|error| unusable(&error))?;
        let is_kept = self.store.keep_certificate(host, &pem);
        let until = humantime::format_rfc3339_seconds(kept.lifetime.until);
        slot.show(kept);
        (self.tell)(&format!("{host} has a certificate, valid until {until}"));
        let Err(error) = is_kept else { return Ok(None) };
        (self.tell)(&format!("error: the certificate of {host} cannot be kept for the next start: {error}"));
        Ok(Some(pem))
    }

    /// Whether what could not be kept before is, or need not be any more.
    fn is_kept_now(&self, slot: &Slot, pem: &str) -> bool {
        let host = slot.host();
        let of_others = self.store.certificate(host).ok().flatten().map(|kept| kept.lifetime.until);
        if of_others >= slot.lifetime().map(|shown| shown.until) {
            return true;
        }
        let is_kept = self.store.keep_certificate(host, pem).is_ok();
        if is_kept {
            (self.tell)(&format!("the certificate of {host} is kept for the next start now"));
        }
        is_kept
    }

    async fn connect(&self) -> Result<Authority, Failure> {
        let authority = Authority::connect(&self.settings, &self.store).await?;
        if let Some(warning) = &authority.warning {
            (self.tell)(warning);
        }
        Ok(authority)
    }

    async fn order(&self, slot: &Slot, schedule: &Schedule) -> Result<String, Failure> {
        let authority = self.connect().await?;
        let ordered = order::order(&authority, &self.settings, &self.challenges, slot, schedule.challenge()).await;
        ordered.map_err(|failure| {
            if failure.reason.ends_with("(accountDoesNotExist)") {
                self.store.forget_account();
            }
            Failure { asked: authority.asked().or(failure.asked), ..failure }
        })
    }

    /// When the authority wants the certificate to be renewed, and how long that may be believed.
    async fn window(&self, slot: &Slot) -> (Option<(SystemTime, SystemTime)>, Duration) {
        let ask = async {
            let _place = self.at_once.acquire().await.ok()?;
            let now = SystemTime::now();
            if let Some(until) = self.patience.until(now) {
                return Some((None, until.duration_since(now).unwrap_or_default()));
            }
            // Nobody needs an account for this alone.
            drop(self.store.account()?);
            let Failure { cause, reason, asked } = match self.connect().await {
                Ok(authority) => match order::window(&authority, slot).await {
                    Ok((window, again)) => {
                        self.patience.on_answer();
                        return Some((Some(window), again));
                    }
                    Err(failure) => Failure { asked: authority.asked().or(failure.asked), ..failure },
                },
                Err(failure) => failure,
            };
            if cause == Cause::NoAnswer && asked.is_none() {
                self.patience.on_no_answer(SystemTime::now(), rand::random());
            }
            let asked = asked?;
            // Nobody else says why orders wait.
            if self.be_patient(asked) {
                let wait = humantime::format_duration(Duration::from_secs(asked.wait().as_secs()));
                (self.tell)(&format!("warning: renewals are not asked about: {reason}; the next try is in {wait}{ASKED_OF_ALL}"));
            }
            Some((None, asked.wait()))
        };
        tokio::time::timeout(ORDER_TIME, ask).await.ok().flatten().unwrap_or((None, ASK_AGAIN.0))
    }

    /// Leaves the authority alone for all names, if that is what it asks for. Whether that is news.
    fn be_patient(&self, asked: Asked) -> bool {
        let now = SystemTime::now();
        let is_news = asked.by_all && self.patience.until(now).is_none();
        if asked.by_all {
            self.patience.extend(now + asked.wait());
        }
        is_news
    }

    fn on_failure(&self, slot: &Slot, schedule: &mut Schedule, failure: Failure) {
        let Failure { cause, reason, asked } = failure;
        let now = SystemTime::now();
        // What is asked of all names is told once.
        let mut is_told = asked.is_some_and(|asked| !self.be_patient(asked) && asked.by_all);
        let mut wait = schedule.on_failure(now, cause, asked);
        let is_unanswered = cause == Cause::NoAnswer && asked.is_none();
        if is_unanswered {
            let together = self.patience.on_no_answer(now, rand::random());
            is_told = together.is_none();
            wait = together.unwrap_or_default();
        } else if matches!(cause, Cause::Limited | Cause::Refused) {
            self.patience.on_answer();
        }
        let wait = Duration::from_secs(wait.as_secs());
        let is_kept = self.store.keep_refusals(slot.host(), schedule.refusals());
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
        let asks = match asked {
            Some(Asked { by_all: true, .. }) => ASKED_OF_ALL,
            Some(_) => ", as the authority asks",
            None if is_unanswered => FOR_ALL,
            None => "",
        };
        let forgotten = is_kept.err().map(|error| format!(", or after a restart, because that cannot be kept: {error}"));
        let (next, forgotten) = (humantime::format_duration(wait), forgotten.unwrap_or_default());
        if !is_told {
            (self.tell)(&format!("error: {what}: {reason}; the next try is in {next}{asks}{forgotten}"));
        }
        slot.set_state(|state| state.error = Some(reason));
    }
}
