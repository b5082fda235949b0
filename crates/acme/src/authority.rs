//! Communication with an authority, over this project's client and with the stored account.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, BodyWrapper, BytesResponse, Error,
    ExternalAccountKey, HttpClient, NewAccount, Problem,
};
use pronghorn_client::{Body, Client, Http3, Options, Roots};

use super::requests::Settings;
use super::schedule::{Cause, RequestedWait};
use super::store::Store;

/// Maximum size of a response: a certificate chain has a few kilobytes.
const ANSWER_BYTES: usize = 1 << 20;
/// Timeout of one response.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The reason why there is no certificate, and when the authority allows the next attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) reason: String,
    pub(super) asked: Option<RequestedWait>,
}

impl Failure {
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Refused, reason: reason.into(), asked: None }
    }

    pub(super) fn passing(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Temporary, reason: reason.into(), asked: None }
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
            Error::Api(problem) if is_passing(&problem) => Self::passing(describe(&problem)),
            Error::Api(problem) if is_limit(&problem) => Self::limited(describe(&problem)),
            Error::Api(problem) => Self::refused(describe(&problem)),
            Error::Timeout(next) => {
                let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
                let asked = wait.map(|wait| RequestedWait { wait, all_names: false });
                Self { asked, ..Self::refused("the authority did not finish in time") }
            }
            Error::Other(ref source) if let Some(answer) = source.downcast_ref::<Answer>() => {
                let reason = answer.to_string();
                if answer.status == StatusCode::TOO_MANY_REQUESTS {
                    Self::limited(reason)
                } else {
                    Self::no_answer(reason)
                }
            }
            Error::Json(error) => {
                Self::no_answer(format!("invalid response from the authority: {error}"))
            }
            error => Self::no_answer(format!("request to the authority failed: {error}")),
        }
    }
}

/// Returns whether the problem is temporary and not caused by this server.
fn is_passing(problem: &Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ["badNonce", "serverInternal"].iter().any(|end| kind.ends_with(end))
}

/// Returns whether the problem is a rate limit and not an error in the request.
fn is_limit(problem: &Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":rateLimited"))
}

/// Formats an authority's error on one line.
pub(super) fn describe(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let detail = problem.detail.as_deref().unwrap_or("no reason given");
    let details = problem.subproblems.iter().filter_map(|one| one.detail.as_deref());
    let text: Vec<_> = std::iter::once(detail).chain(details).collect();
    let text = format!("the authority says: {} ({kind})", text.join("; "));
    line(&text)
}

/// Removes control characters from foreign text, so that it fits on a line.
pub(super) fn line(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(600)
        .collect()
}

/// A response that is no ACME message: the authority's own server, or a proxy in front of it, has a
/// problem.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub(super) struct Answer {
    status: StatusCode,
    said: String,
}

/// A connection with the account, and the authority's last request to wait.
pub(super) struct Authority {
    pub(super) account: Account,
    /// Warning for the operator.
    pub(super) warning: Option<String>,
    asked: Arc<Mutex<Option<RequestedWait>>>,
}

impl Authority {
    /// Connects, and creates the account if there is none. A changed email address is sent to the
    /// authority.
    pub(super) async fn connect(settings: &Settings, store: &Store) -> Result<Self, Failure> {
        let asked = Arc::default();
        let http = || http(settings, &asked);
        let account = if let Some(credentials) = store.account() {
            connect(http()?, credentials, settings, store).await
        } else {
            // Another process may be creating it, or has created it meanwhile.
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
            // No name has been mentioned yet, so the wait applies to all names.
            Err(failure) => Err(Failure {
                asked: last(&asked)
                    .map(|asked| RequestedWait { all_names: true, ..asked })
                    .or(failure.asked),
                ..failure
            }),
        }
    }

    /// Returns how long the authority asked to wait in its last response, if it did.
    pub(super) fn asked(&self) -> Option<RequestedWait> {
        last(&self.asked)
    }
}

fn last(asked: &Mutex<Option<RequestedWait>>) -> Option<RequestedWait> {
    *asked.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(
    builder: AccountBuilder,
    credentials: AccountCredentials,
    settings: &Settings,
    store: &Store,
) -> Result<(Account, Option<String>), Failure> {
    let account = builder.from_credentials(credentials).await?;
    let email = settings.email.as_deref();
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
        // Certificates do not depend on the address.
        Err(Failure { cause: Cause::Refused, reason, asked: None }) => Ok((
            account,
            Some(format!("warning: the authority rejected the new email address: {reason}")),
        )),
        Err(failure) => Err(failure),
    }
}

/// Returns the contact URL of an email address.
fn contact(email: Option<&str>) -> Vec<String> {
    email.iter().map(|email| format!("mailto:{email}")).collect()
}

async fn create(
    builder: AccountBuilder,
    settings: &Settings,
    store: &Store,
) -> Result<Account, Failure> {
    let email = settings.email.as_deref();
    let contact = contact(email);
    let contact: Vec<_> = contact.iter().map(String::as_str).collect();
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: settings.terms_agreed,
        only_return_existing: false,
    };
    let external = settings.external_account.as_ref();
    let external =
        external.map(|account| ExternalAccountKey::new(account.id.clone(), &account.key));
    // Authorities limit the number of accounts, so none is created that cannot be stored.
    let is_kept = |error: io::Error| Failure::passing(format!("cannot store the account: {error}"));
    store.try_account().map_err(is_kept)?;
    let (account, credentials) =
        builder.create(&new, settings.directory.clone(), external.as_ref()).await?;
    store.store_account(&credentials).map_err(is_kept)?;
    store.keep_contact(email);
    Ok(account)
}

/// Creates a client for one conversation: its thread ends with it.
fn http(
    settings: &Settings,
    asked: &Arc<Mutex<Option<RequestedWait>>>,
) -> Result<AccountBuilder, Failure> {
    let roots = settings.trust.as_ref().map_or(Roots::System, |pem| Roots::Pem(pem.clone()));
    let options = Options {
        roots,
        http3: Http3::Off,
        head_timeout: ANSWER_TIME,
        body_timeout: ANSWER_TIME,
        ..Options::default()
    };
    let client =
        Client::with_options(&options, 1).map_err(|error| Failure::passing(error.to_string()))?;
    Ok(Account::builder_with_http(Box::new(Http { client, asked: asked.clone() })))
}

struct Http {
    client: Client,
    asked: Arc<Mutex<Option<RequestedWait>>>,
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, asked) = (self.client.clone(), self.asked.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let body = if body.is_empty() { Body::empty() } else { body.into() };
            let is_post = parts.method == Method::POST;
            let answer = client
                .send(Request::from_parts(parts, body))
                .await
                .map_err(|error| Error::Other(error.into()))?;
            let (parts, body) = answer.into_parts();
            *asked.lock().unwrap_or_else(PoisonError::into_inner) = asked_by(&parts);
            let body =
                Limited::new(body, ANSWER_BYTES).collect().await.map_err(Error::Other)?.to_bytes();
            if parts.status.is_client_error() || parts.status.is_server_error() {
                let problem = serde_json::from_slice(&body)
                    .ok()
                    .filter(|problem: &Problem| problem.r#type.is_some());
                // The library checks the status only for responses to a POST.
                if !is_post || problem.is_none() {
                    let said = problem.as_ref().map_or_else(
                        || format!("the authority answered {}", parts.status),
                        describe,
                    );
                    return Err(Error::Other(Box::new(Answer { status: parts.status, said })));
                }
            }
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Returns the wait that a response head asks for (RFC 8555, section 6.6; RFC 9110, section
/// 15.6.4).
fn asked_by(head: &http::response::Parts) -> Option<RequestedWait> {
    let all_names = match head.status {
        StatusCode::SERVICE_UNAVAILABLE => true,
        // It may be the rate limit of a single name.
        StatusCode::TOO_MANY_REQUESTS => false,
        _ => return None,
    };
    let wait = retry_after(head.headers.get(RETRY_AFTER)?.to_str().ok()?)?;
    Some(RequestedWait { wait, all_names })
}

/// Parses `Retry-After`, a number or a date (RFC 9110, section 10.2.3).
fn retry_after(value: &str) -> Option<Duration> {
    let until = || httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok();
    value.parse().ok().map(Duration::from_secs).or_else(until)
}
