//! The ordering thread: a task for each name, which waits until its certificate is due.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{self, LocalSet, spawn_local};

use super::authority::{Authority, Failure};
use super::challenges::Challenges;
use super::managed_certificate::{ManagedCertificate, OrderState};
use super::order;
use super::requests::{CertificateRequests, LogLine, Settings};
use super::schedule::{Backoff, Cause, RequestedWait, Schedule};
use super::store::{Store, StoredCertificate};

/// Maximum number of concurrent orders.
const AT_ONCE: usize = 4;
/// Maximum length of one wait. Longer waits are split, so that suspended machines and clock changes
/// are noticed.
const PIECE: Duration = Duration::from_mins(10);
/// Interval between checks whether another process has ordered the certificate.
const OTHERS: Duration = Duration::from_secs(1);
/// Interval between attempts to store a certificate after a disk error.
const KEEP_AGAIN: Duration = Duration::from_secs(10);
/// Suffix after the time of the next attempt, for a wait that the authority asked for.
const ASKED_OF_ALL: &str = ", as the authority asked, for all names";
/// The same if the authority gave no time.
const FOR_ALL: &str = ", for all names";
/// Minimum and maximum interval between requests for renewal times, whatever the authority says.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_hours(1), Duration::from_hours(24));
/// Timeout of one order, with all of its waits.
const ORDER_TIME: Duration = Duration::from_mins(10);

/// Starts the thread. It ends when the returned sender is dropped, whatever it is doing.
///
/// The runtime is built there: one that is dropped inside another runtime, as after a failed spawn,
/// would panic.
pub(super) fn start(
    challenges: Arc<Challenges>,
    log: Arc<LogLine>,
) -> io::Result<(UnboundedSender<CertificateRequests>, JoinHandle<()>)> {
    let (requests, requested) = unbounded_channel();
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => LocalSet::new().block_on(&runtime, serve(requested, challenges, log)),
        Err(error) => log(&format!("error: cannot order certificates: {error}")),
    };
    let thread = std::thread::Builder::new().name("acme".to_owned()).spawn(run)?;
    Ok((requests, thread))
}

/// State shared by the tasks of all names.
struct OrderContext {
    settings: Arc<Settings>,
    store: Arc<Store>,
    challenges: Arc<Challenges>,
    at_once: Arc<Semaphore>,
    patience: Rc<Backoff>,
    log: Arc<LogLine>,
}

struct Task {
    slot: Arc<ManagedCertificate>,
    settings: Arc<Settings>,
    running: task::JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn serve(
    mut requested: UnboundedReceiver<CertificateRequests>,
    challenges: Arc<Challenges>,
    log: Arc<LogLine>,
) {
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks: HashMap<String, Task> = HashMap::new();
    let mut patience: (String, Rc<Backoff>) = Default::default();
    while let Some(CertificateRequests { settings, store, slots }) = requested.recv().await {
        let stays = |task: &Task| {
            task.settings == settings && slots.iter().any(|slot| Arc::ptr_eq(slot, &task.slot))
        };
        // A refusal under other settings does not apply to these.
        let changed: Vec<_> = tasks
            .values()
            .filter(|task| task.settings != settings)
            .map(|task| task.slot.host().to_owned())
            .collect();
        tasks.retain(|_, task| stays(task));
        if patience.0 != settings.directory {
            patience = (settings.directory.clone(), Rc::default());
        }
        let shared = Rc::new(OrderContext {
            settings: settings.clone(),
            store,
            challenges: challenges.clone(),
            at_once: at_once.clone(),
            patience: patience.1.clone(),
            log: log.clone(),
        });
        for slot in slots {
            if changed.iter().any(|host| host == slot.host()) {
                slot.retry.notify_one();
            }
            tasks.entry(slot.host().to_owned()).or_insert_with(|| Task {
                running: spawn_local(maintain(slot.clone(), shared.clone())),
                slot,
                settings: settings.clone(),
            });
        }
    }
}

/// Maintains the certificate of one name, forever.
async fn maintain(slot: Arc<ManagedCertificate>, shared: Rc<OrderContext>) {
    let host = slot.host();
    let refusals = shared.store.refusals(host);
    let mut schedule = Schedule::new(rand::random(), shared.settings.challenges.len(), refusals);
    let mut ask_window = SystemTime::UNIX_EPOCH;
    // Certificate that is in use but could not be stored.
    let mut unstored = None;
    // The operator has requested a retry: the authority may be contacted once, even if it asked to
    // wait.
    let mut retry_requested = false;
    loop {
        unstored = unstored.filter(|pem: &String| !shared.is_kept_now(&slot, pem));
        let now = SystemTime::now();
        let patience = shared.patience.until(now).filter(|_| !retry_requested);
        if slot.lifetime().is_some() && ask_window <= now && patience.is_none() {
            let (window, again) = shared.window(&slot).await;
            schedule.set_window(window);
            ask_window = now + again.clamp(ASK_AGAIN.0, ASK_AGAIN.1);
        }
        let due =
            schedule.due(now, slot.lifetime()).max(patience.unwrap_or(SystemTime::UNIX_EPOCH));
        slot.set_state(|state| {
            (state.next, state.failures, state.is_running) =
                (Some(due), schedule.failures(), false);
        });
        if let Ok(wait) = due.duration_since(now)
            && !wait.is_zero()
        {
            let wait = wait.min(if unstored.is_some() { KEEP_AGAIN } else { PIECE });
            if tokio::time::timeout(wait, slot.retry.notified()).await.is_ok() {
                schedule.reset();
                shared.patience.reset();
                // If this fails, the reset still counts for this process.
                drop(shared.store.keep_refusals(host, schedule.refusals()));
                retry_requested = true;
            }
            continue;
        }
        let Ok(place) = shared.at_once.acquire().await else { return };
        let now = SystemTime::now();
        if !retry_requested && shared.patience.until(now).is_some() {
            continue;
        }
        // The lock is held until the result of the order is written: the next holder reads that
        // first.
        let lock = match shared.store.lock(host) {
            Ok(None) => {
                drop(place);
                tokio::time::sleep(OTHERS).await;
                continue;
            }
            lock => lock,
        };
        let ordered = match &lock {
            Ok(_) if schedule.adopt_refusals(now, shared.store.refusals(host)) => continue,
            Ok(_) => {
                slot.set_state(|state| state.is_running = true);
                shared.renew(&slot, &schedule).await
            }
            Err(error) => Err(Failure::passing(format!("cannot store certificates: {error}"))),
        };
        match ordered {
            Ok(not_kept) => {
                unstored = not_kept;
                shared.patience.on_answer();
                schedule.on_success();
                drop(shared.store.keep_refusals(host, schedule.refusals()));
                slot.set_state(|state| *state = OrderState::default());
                ask_window = SystemTime::UNIX_EPOCH;
            }
            Err(failure) => shared.on_failure(&slot, &mut schedule, failure),
        }
        retry_requested = false;
    }
}

impl OrderContext {
    /// Orders a certificate and puts it in use, unless another process has obtained one meanwhile.
    /// Returns the certificate if it could not be stored.
    async fn renew(
        &self,
        slot: &ManagedCertificate,
        schedule: &Schedule,
    ) -> Result<Option<String>, Failure> {
        let host = slot.host();
        if let Ok(Some(kept)) = self.store.certificate(host)
            && slot.lifetime().is_none_or(|shown| shown.until < kept.lifetime.until)
            && schedule.due(SystemTime::now(), Some(kept.lifetime)) > SystemTime::now()
        {
            slot.show(kept);
            (self.log)(&format!("the certificate of {host} was renewed by another process"));
            return Ok(None);
        }
        let late = |_| Failure::refused("the order did not finish in time");
        let pem =
            tokio::time::timeout(ORDER_TIME, self.order(slot, schedule)).await.map_err(late)??;
        let unusable = |error: &dyn std::fmt::Display| {
            Failure::refused(format!("unusable certificate from the authority: {error}"))
        };
        let kept = StoredCertificate::from_pem(pem.as_bytes()).map_err(|error| unusable(&error))?;
        let is_kept = self.store.store_certificate(host, &pem);
        let until = humantime::format_rfc3339_seconds(kept.lifetime.until);
        slot.show(kept);
        (self.log)(&format!("{host} has a certificate, valid until {until}"));
        let Err(error) = is_kept else { return Ok(None) };
        (self.log)(&format!(
            "error: cannot store the certificate of {host} for the next start: {error}"
        ));
        Ok(Some(pem))
    }

    /// Returns whether a certificate that could not be stored is stored now, or no longer needs to
    /// be.
    fn is_kept_now(&self, slot: &ManagedCertificate, pem: &str) -> bool {
        let host = slot.host();
        let of_others = self.store.certificate(host).ok().flatten().map(|kept| kept.lifetime.until);
        if of_others >= slot.lifetime().map(|shown| shown.until) {
            return true;
        }
        let is_kept = self.store.store_certificate(host, pem).is_ok();
        if is_kept {
            (self.log)(&format!("the certificate of {host} is now stored for the next start"));
        }
        is_kept
    }

    async fn connect(&self) -> Result<Authority, Failure> {
        let authority = Authority::connect(&self.settings, &self.store).await?;
        if let Some(warning) = &authority.warning {
            (self.log)(warning);
        }
        Ok(authority)
    }

    async fn order(
        &self,
        slot: &ManagedCertificate,
        schedule: &Schedule,
    ) -> Result<String, Failure> {
        let authority = self.connect().await?;
        let ordered =
            order::order(&authority, &self.settings, &self.challenges, slot, schedule.challenge())
                .await;
        ordered.map_err(|failure| {
            if failure.reason.ends_with("(accountDoesNotExist)") {
                self.store.remove_account();
            }
            Failure { asked: authority.asked().or(failure.asked), ..failure }
        })
    }

    /// Returns when the authority suggests renewing the certificate, and for how long to rely on
    /// it.
    async fn window(
        &self,
        slot: &ManagedCertificate,
    ) -> (Option<(SystemTime, SystemTime)>, Duration) {
        let ask = async {
            let _place = self.at_once.acquire().await.ok()?;
            let now = SystemTime::now();
            if let Some(until) = self.patience.until(now) {
                return Some((None, until.duration_since(now).unwrap_or_default()));
            }
            // No account is created for this alone.
            drop(self.store.account()?);
            let Failure { cause, reason, asked } = match self.connect().await {
                Ok(authority) => match order::window(&authority, slot).await {
                    Ok((window, again)) => {
                        self.patience.on_answer();
                        return Some((Some(window), again));
                    }
                    Err(failure) => {
                        Failure { asked: authority.asked().or(failure.asked), ..failure }
                    }
                },
                Err(failure) => failure,
            };
            if cause == Cause::NoAnswer && asked.is_none() {
                self.patience.on_no_answer(SystemTime::now(), rand::random());
            }
            let asked = asked?;
            // This is the only line that says why orders wait.
            if self.be_patient(asked) {
                let wait = humantime::format_duration(Duration::from_secs(asked.wait().as_secs()));
                (self.log)(&format!(
                    "warning: cannot query renewal times: {reason}; next attempt in \
                        {wait}{ASKED_OF_ALL}"
                ));
            }
            Some((None, asked.wait()))
        };
        tokio::time::timeout(ORDER_TIME, ask).await.ok().flatten().unwrap_or((None, ASK_AGAIN.0))
    }

    /// Delays requests for all names, if the authority asked for it. Returns whether this is a new
    /// delay.
    fn be_patient(&self, asked: RequestedWait) -> bool {
        let now = SystemTime::now();
        let is_news = asked.all_names && self.patience.until(now).is_none();
        if asked.all_names {
            self.patience.extend(now + asked.wait());
        }
        is_news
    }

    fn on_failure(&self, slot: &ManagedCertificate, schedule: &mut Schedule, failure: Failure) {
        let Failure { cause, reason, asked } = failure;
        let now = SystemTime::now();
        // A wait for all names is logged once.
        let mut retry_requested =
            asked.is_some_and(|asked| !self.be_patient(asked) && asked.all_names);
        let mut wait = schedule.on_failure(now, cause, asked);
        let is_unanswered = cause == Cause::NoAnswer && asked.is_none();
        if is_unanswered {
            let together = self.patience.on_no_answer(now, rand::random());
            retry_requested = together.is_none();
            wait = together.unwrap_or_default();
        } else if matches!(cause, Cause::Limited | Cause::Refused) {
            self.patience.on_answer();
        }
        let wait = Duration::from_secs(wait.as_secs());
        let is_kept = self.store.keep_refusals(slot.host(), schedule.refusals());
        let what = match slot.lifetime() {
            Some(lifetime) if lifetime.until > now => {
                format!(
                    "cannot renew the certificate of {}, valid until {}",
                    slot.host(),
                    humantime::format_rfc3339_seconds(lifetime.until)
                )
            }
            _ => format!("no certificate for {}", slot.host()),
        };
        let asks = match asked {
            Some(RequestedWait { all_names: true, .. }) => ASKED_OF_ALL,
            Some(_) => ", as the authority asked",
            None if is_unanswered => FOR_ALL,
            None => "",
        };
        let forgotten = is_kept.err().map(|error| {
            format!(", or after a restart, because the wait cannot be stored: {error}")
        });
        let (next, forgotten) = (humantime::format_duration(wait), forgotten.unwrap_or_default());
        if !retry_requested {
            (self.log)(&format!(
                "error: {what}: {reason}; next attempt in {next}{asks}{forgotten}"
            ));
        }
        slot.set_state(|state| state.error = Some(reason));
    }
}
