//! How an authority is spoken to: over the client of this project, with the account that is kept.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, BodyWrapper, BytesResponse, Error, ExternalAccountKey, HttpClient, NewAccount, Problem,
};
use pronghorn_client::{Body, Client, Http3, Options, Roots};

use super::Settings;
use super::schedule::{Asked, Cause};
use super::store::Store;

/// The largest answer: a chain of certificates has a few kilobytes.
const ANSWER_BYTES: usize = 1 << 20;
/// Any one answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Why there is no certificate, and what the authority says of when to come again.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) reason: String,
    pub(super) asked: Option<Asked>,
}

impl Failure {
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Refused, reason: reason.into(), asked: None }
    }

    pub(super) fn passing(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Passing, reason: reason.into(), asked: None }
    }

    fn no_answer(reason: impl Into<String>) -> Self {
        Self { cause: Cause::NoAnswer, reason: reason.into(), asked: None }
    }

    fn limited(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Limited, reason: reason.into(), asked: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) if is_passing(&problem) => Self::passing(words(&problem)),
            Error::Api(problem) if is_limit(&problem) => Self::limited(words(&problem)),
            Error::Api(problem) => Self::refused(words(&problem)),
            Error::Timeout(next) => {
                let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
                let asked = wait.map(|wait| Asked { wait, by_all: false });
                Self { asked, ..Self::refused("the authority did not come to an end in time") }
            }
            Error::Other(ref source) if let Some(answer) = source.downcast_ref::<Answer>() => {
                let reason = answer.to_string();
                if answer.status == StatusCode::TOO_MANY_REQUESTS { Self::limited(reason) } else { Self::no_answer(reason) }
            }
            Error::Json(error) => Self::no_answer(format!("the authority's answer cannot be read: {error}")),
            error => Self::no_answer(format!("the authority cannot be asked: {error}")),
        }
    }
}

/// Whether it says nothing about us.
fn is_passing(problem: &Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ["badNonce", "serverInternal"].iter().any(|end| kind.ends_with(end))
}

/// Whether it is about how much was asked for, and not about what.
fn is_limit(problem: &Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":rateLimited"))
}

/// What an authority says, on one line.
pub(super) fn words(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let detail = problem.detail.as_deref().unwrap_or("no reason given");
    let details = problem.subproblems.iter().filter_map(|one| one.detail.as_deref());
    let text: Vec<_> = std::iter::once(detail).chain(details).collect();
    let text = format!("the authority says: {} ({kind})", text.join("; "));
    line(&text)
}

/// What somebody else wrote, as part of a line.
pub(super) fn line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(600).collect()
}

/// An answer that no message of the protocol is in: the authority's own server is not well, or something before it.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub(super) struct Answer {
    status: StatusCode,
    said: String,
}

/// The account, and how long the authority asked to be left alone.
pub(super) struct Authority {
    pub(super) account: Account,
    /// What somebody should know who can do something about it.
    pub(super) warning: Option<String>,
    asked: Arc<Mutex<Option<Asked>>>,
}

impl Authority {
    /// Connects, and makes the account if there is none yet. The authority is told of another address to write to.
    pub(super) async fn connect(settings: &Settings, store: &Store) -> Result<Self, Failure> {
        let asked = Arc::default();
        let http = || http(settings, &asked);
        let account = if let Some(credentials) = store.account() {
            connect(http()?, credentials, settings, store).await
        } else {
            // Another process may be making it, or have made it meanwhile.
            let _lock = loop {
                match store.lock_account().map_err(|error| Failure::passing(error.to_string()))? {
                    Some(lock) => break lock,
                    None => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            };
            match store.account() {
                Some(credentials) => connect(http()?, credentials, settings, store).await,
                None => create(http()?, settings, store).await.map(|account| (account, None)),
            }
        };
        match account {
            Ok((account, warning)) => Ok(Self { account, warning, asked }),
            // Nothing was said of a name yet.
            Err(failure) => Err(Failure { asked: last(&asked).map(|asked| Asked { by_all: true, ..asked }).or(failure.asked), ..failure }),
        }
    }

    /// How long it asked to be left alone, if it did so with its last answer.
    pub(super) fn asked(&self) -> Option<Asked> {
        last(&self.asked)
    }
}

fn last(asked: &Mutex<Option<Asked>>) -> Option<Asked> {
    *asked.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(
    builder: AccountBuilder,
    credentials: AccountCredentials,
    settings: &Settings,
    store: &Store,
) -> Result<(Account, Option<String>), Failure> {
    let account = builder.from_credentials(credentials).await?;
    let email = settings.acme.email.as_deref();
    if store.is_contact(email) {
        return Ok((account, None));
    }
    let contact = contact(email);
    let contact: Vec<_> = contact.iter().map(String::as_str).collect();
    match account.update_contacts(&contact).await.map_err(Failure::from) {
        Ok(()) => {
            store.keep_contact(email);
            Ok((account, None))
        }
        // Certificates do not depend on it.
        Err(Failure { cause: Cause::Refused, reason, asked: None }) => {
            Ok((account, Some(format!("warning: the authority does not take the new email of [acme]: {reason}"))))
        }
        Err(failure) => Err(failure),
    }
}

/// Where an authority writes to, as it wants that said.
fn contact(email: Option<&str>) -> Vec<String> {
    email.iter().map(|email| format!("mailto:{email}")).collect()
}

async fn create(builder: AccountBuilder, settings: &Settings, store: &Store) -> Result<Account, Failure> {
    let acme = &settings.acme;
    let email = acme.email.as_deref();
    let contact = contact(email);
    let contact: Vec<_> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: acme.terms_agreed, only_return_existing: false };
    let external = acme.external_account.as_ref();
    let external = external.and_then(|account| Some(ExternalAccountKey::new(account.id.clone(), &account.key_bytes()?)));
    // Authorities count accounts too: none is made that is forgotten.
    let is_kept = |error: io::Error| Failure::passing(format!("an account cannot be kept: {error}"));
    store.try_account().map_err(is_kept)?;
    let (account, credentials) = builder.create(&new, acme.directory.clone(), external.as_ref()).await?;
    store.keep_account(&credentials).map_err(is_kept)?;
    store.keep_contact(email);
    Ok(account)
}

/// A client for one conversation: its thread ends with it.
fn http(settings: &Settings, asked: &Arc<Mutex<Option<Asked>>>) -> Result<AccountBuilder, Failure> {
    let roots = settings.trust.as_ref().map_or(Roots::System, |pem| Roots::Pem(pem.clone()));
    let options = Options { roots, http3: Http3::Off, head_timeout: ANSWER_TIME, body_timeout: ANSWER_TIME, ..Options::default() };
    let client = Client::with_options(&options, 1).map_err(|error| Failure::passing(error.to_string()))?;
    Ok(Account::builder_with_http(Box::new(Http { client, asked: asked.clone() })))
}

struct Http {
    client: Client,
    asked: Arc<Mutex<Option<Asked>>>,
}

impl HttpClient for Http {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, asked) = (self.client.clone(), self.asked.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let body = if body.is_empty() { Body::empty() } else { body.into() };
            let is_post = parts.method == Method::POST;
            let answer = client.send(Request::from_parts(parts, body)).await.map_err(|error| Error::Other(error.into()))?;
            let (parts, body) = answer.into_parts();
            *asked.lock().unwrap_or_else(PoisonError::into_inner) = asked_by(&parts);
            let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(Error::Other)?.to_bytes();
            if parts.status.is_client_error() || parts.status.is_server_error() {
                let problem = serde_json::from_slice(&body).ok().filter(|problem: &Problem| problem.r#type.is_some());
                // Only of answers to a POST the library looks at the status.
                if !is_post || problem.is_none() {
                    let said = problem.as_ref().map_or_else(|| format!("the authority answers {}", parts.status), words);
                    return Err(Error::Other(Box::new(Answer { status: parts.status, said })));
                }
            }
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// What a head says of when to come again (RFC 8555, section 6.6; RFC 9110, section 15.6.4).
fn asked_by(head: &http::response::Parts) -> Option<Asked> {
    let by_all = match head.status {
        StatusCode::SERVICE_UNAVAILABLE => true,
        // It may be the limit of a name.
        StatusCode::TOO_MANY_REQUESTS => false,
        _ => return None,
    };
    let wait = retry_after(head.headers.get(RETRY_AFTER)?.to_str().ok()?)?;
    Some(Asked { wait, by_all })
}

/// `Retry-After`, as a number or a date (RFC 9110, section 10.2.3).
fn retry_after(value: &str) -> Option<Duration> {
    let until = || httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok();
    value.parse().ok().map(Duration::from_secs).or_else(until)
}
