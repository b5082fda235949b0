//! How an authority is spoken to: over the client of this project, with the account that is kept.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, BodyWrapper, BytesResponse, Error, ExternalAccountKey, HttpClient, NewAccount,
};
use pronghorn_client::{Body, Client, Http3, Options, Roots};

use super::Settings;
use super::schedule::Cause;
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
    pub(super) wait: Option<Duration>,
}

impl Failure {
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Refused, reason: reason.into(), wait: None }
    }

    pub(super) fn unreachable(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Unreachable, reason: reason.into(), wait: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) if is_passing(&problem) => Self::unreachable(words(&problem)),
            Error::Api(problem) => Self::refused(words(&problem)),
            Error::Timeout(_) => Self::refused("the authority did not come to an end in time"),
            Error::Json(error) => Self::unreachable(format!("the authority's answer cannot be read: {error}")),
            error => Self::unreachable(format!("the authority cannot be asked: {error}")),
        }
    }
}

/// Whether it says nothing about us.
fn is_passing(problem: &instant_acme::Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ["badNonce", "serverInternal"].iter().any(|end| kind.ends_with(end))
}

/// What an authority says, on one line.
pub(super) fn words(problem: &instant_acme::Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let detail = problem.detail.as_deref().unwrap_or("no reason given");
    let details = problem.subproblems.iter().filter_map(|one| one.detail.as_deref());
    let text: Vec<_> = std::iter::once(detail).chain(details).collect();
    let text = format!("the authority says: {} ({kind})", text.join("; "));
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(600).collect()
}

/// The account, and how long the authority asked to be left alone.
pub(super) struct Authority {
    pub(super) account: Account,
    wait: Arc<AtomicU64>,
}

impl Authority {
    /// Connects, and makes the account if there is none yet.
    pub(super) async fn connect(settings: &Settings, store: &Store) -> Result<Self, Failure> {
        let wait = Arc::new(AtomicU64::new(0));
        let http = || http(settings, &wait);
        let account = if let Some(credentials) = store.account() {
            connect(http()?, credentials).await
        } else {
            // Another process may be making it, or have made it meanwhile.
            let _lock = loop {
                match store.lock_account().map_err(|error| Failure::unreachable(error.to_string()))? {
                    Some(lock) => break lock,
                    None => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            };
            match store.account() {
                Some(credentials) => connect(http()?, credentials).await,
                None => create(http()?, settings, store).await,
            }
        };
        let mut authority = account.map(|account| Self { account, wait: wait.clone() });
        if let Err(failure) = &mut authority {
            failure.wait = asked_to_wait(&wait);
        }
        authority
    }

    /// How long it asked to be left alone with its last refusal.
    pub(super) fn asked_to_wait(&self) -> Option<Duration> {
        asked_to_wait(&self.wait)
    }
}

fn asked_to_wait(wait: &AtomicU64) -> Option<Duration> {
    Some(Duration::from_secs(wait.load(Ordering::Relaxed))).filter(|wait| !wait.is_zero())
}

async fn connect(builder: AccountBuilder, credentials: AccountCredentials) -> Result<Account, Failure> {
    Ok(builder.from_credentials(credentials).await?)
}

async fn create(builder: AccountBuilder, settings: &Settings, store: &Store) -> Result<Account, Failure> {
    let acme = &settings.acme;
    let email = acme.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<_> = email.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: acme.terms_agreed, only_return_existing: false };
    let external = acme.external_account.as_ref();
    let external = external.and_then(|account| Some(ExternalAccountKey::new(account.id.clone(), &account.key_bytes()?)));
    let (account, credentials) = builder.create(&new, acme.directory.clone(), external.as_ref()).await?;
    store.keep_account(&credentials).map_err(|error| Failure::unreachable(format!("the account cannot be kept: {error}")))?;
    Ok(account)
}

/// A client for one conversation: its thread ends with it.
fn http(settings: &Settings, wait: &Arc<AtomicU64>) -> Result<AccountBuilder, Failure> {
    let roots = settings.trust.as_ref().map_or(Roots::System, |pem| Roots::Pem(pem.clone()));
    let options = Options { roots, http3: Http3::Off, head_timeout: ANSWER_TIME, body_timeout: ANSWER_TIME, ..Options::default() };
    let client = Client::with_options(&options, 1).map_err(|error| Failure::unreachable(error.to_string()))?;
    Ok(Account::builder_with_http(Box::new(Http { client, wait: wait.clone() })))
}

struct Http {
    client: Client,
    wait: Arc<AtomicU64>,
}

impl HttpClient for Http {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, wait) = (self.client.clone(), self.wait.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let body = if body.is_empty() { Body::empty() } else { body.into() };
            let answer = client.send(Request::from_parts(parts, body)).await.map_err(|error| Error::Other(error.into()))?;
            let (parts, body) = answer.into_parts();
            if matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                let seconds = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(seconds);
                wait.store(seconds.unwrap_or_default(), Ordering::Relaxed);
            }
            let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(Error::Other)?.to_bytes();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// `Retry-After`, as a number or a date (RFC 9110, section 10.2.3).
fn seconds(value: &str) -> Option<u64> {
    let until = || httpdate::parse_http_date(value).ok()?.duration_since(std::time::SystemTime::now()).ok();
    value.parse().ok().or_else(|| until().map(|wait| wait.as_secs()))
}
