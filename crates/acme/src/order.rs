//! An order, from the first request to the chain.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{
    AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};

use super::authority::{Answer, Authority, Failure, describe, line};
use super::challenges::{Challenges, Proof, PublishedProof};
use super::managed_certificate::ManagedCertificate;
use super::requests::{Challenge, Settings};
use super::schedule::Cause;

/// Time for an authority to validate a proof and to issue a certificate.
const POLL_POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Orders a certificate, and returns its key and chain as PEM text. `turn`: the index of the
/// challenge to try first.
pub(super) async fn order(
    authority: &Authority,
    settings: &Settings,
    challenges: &Arc<Challenges>,
    slot: &ManagedCertificate,
    turn: usize,
) -> Result<String, Failure> {
    let host = slot.host();
    has_profile(authority, settings)?;
    let mut order = begin(authority, settings, slot).await?;
    let proofs = prove(&mut order, settings, challenges, host, turn).await?;
    if !matches!(order.state().status, OrderStatus::Ready) {
        match order.poll_ready(&POLL_POLICY).await {
            Ok(OrderStatus::Ready) => {}
            // The failure is not about the proofs, or the authority asked to wait: no further
            // requests.
            Err(error) if authority.asked().is_some() || matches!(error, Error::Other(_)) => {
                return Err(error.into());
            }
            ready => {
                let reason = validation_error(&mut order).await;
                let default = || Failure::refused("the authority reports the order as invalid");
                return Err(reason
                    .map(Failure::refused)
                    .or_else(|| ready.err().map(Failure::from))
                    .unwrap_or_else(default));
            }
        }
    }
    drop(proofs);
    let made = |error: rcgen::Error| Failure::passing(error.to_string());
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(made)?;
    let mut parameters = CertificateParams::new([host.to_owned()]).map_err(made)?;
    parameters.distinguished_name = DistinguishedName::new();
    let request = parameters.serialize_request(&key).map_err(made)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&POLL_POLICY).await?;
    Ok(key.serialize_pem() + &chain)
}

/// Begins an order. Names the certificate that it replaces (RFC 9773), if there is one, and retries
/// without if the authority rejects that.
async fn begin(
    authority: &Authority,
    settings: &Settings,
    slot: &ManagedCertificate,
) -> Result<Order, Failure> {
    let identifiers = [Identifier::Dns(slot.host().to_owned())];
    let new = || {
        let new = NewOrder::new(&identifiers);
        settings
            .profile
            .as_deref()
            .map_or_else(|| NewOrder::new(&identifiers), |profile| new.profile(profile))
    };
    if let Some(before) = identifier(slot) {
        match authority.account.new_order(&new().replaces(before)).await {
            Ok(order) => return Ok(order),
            Err(Error::Api(problem)) if is_final(&problem) => {
                return Err(Error::Api(problem).into());
            }
            Err(error @ Error::Other(_)) if error.is_not_of_the_order() => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(authority.account.new_order(&new()).await?)
}

/// Returns whether the order would fail in the same way without the replaced certificate.
fn is_final(problem: &instant_acme::Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ["rateLimited", "serverInternal", "accountDoesNotExist", "badNonce", "unauthorized"]
        .iter()
        .any(|end| kind.ends_with(end))
}

trait Source {
    fn is_not_of_the_order(&self) -> bool;
}

impl Source for Error {
    fn is_not_of_the_order(&self) -> bool {
        matches!(self, Error::Other(source) if source.is::<pronghorn_client::Error>() || source.is::<Answer>())
    }
}

/// Checks that the authority lists the profile; ordering another one would only be refused.
fn has_profile(authority: &Authority, settings: &Settings) -> Result<(), Failure> {
    let Some(wanted) = settings.profile.as_deref() else { return Ok(()) };
    let mut listed: Vec<_> = authority.account.profiles().map(|profile| profile.name).collect();
    if listed.contains(&wanted) {
        return Ok(());
    }
    listed.sort_unstable();
    let has = if listed.is_empty() { "no profiles".to_owned() } else { line(&listed.join(", ")) };
    Err(Failure::refused(format!("unknown profile {wanted:?}: the authority has {has}")))
}

/// Returns the identifier of the current certificate; `None` if it has expired.
fn identifier(slot: &ManagedCertificate) -> Option<CertificateIdentifier<'static>> {
    let (key, lifetime) = (slot.key()?, slot.lifetime()?);
    let identifier = CertificateIdentifier::try_from(key.end_entity_cert().ok()?).ok()?;
    (lifetime.until > SystemTime::now()).then(|| identifier.into_owned())
}

/// Returns when the authority suggests renewing the certificate, and when to ask again.
pub(super) async fn window(
    authority: &Authority,
    slot: &ManagedCertificate,
) -> Result<((SystemTime, SystemTime), Duration), Failure> {
    let identifier = identifier(slot).ok_or_else(|| Failure::refused("no certificate to renew"))?;
    let (renewal, again) = authority.account.renewal_info(&identifier).await?;
    let window = renewal.suggested_window;
    Ok(((window.start.into(), window.end.into()), again))
}

/// Publishes the proofs that the authority looks for, until the returned guards are dropped.
async fn prove(
    order: &mut Order,
    settings: &Settings,
    challenges: &Arc<Challenges>,
    host: &str,
    turn: usize,
) -> Result<Vec<PublishedProof>, Failure> {
    let mut shown = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let offers = |wanted: &Challenge| {
            authorization.challenges.iter().any(|one| one.r#type == kind(*wanted))
        };
        let wanted = settings.challenges.iter().cycle().skip(turn).take(settings.challenges.len());
        let Some(wanted) = wanted.copied().find(|one| offers(one)) else {
            return Err(Failure::refused(
                "the authority offers no challenge that this server can answer",
            ));
        };
        let Some(mut challenge) = authorization.challenge(kind(wanted)) else { continue };
        let proof = match wanted {
            Challenge::Http01 => Proof::http(&challenge.token, &challenge.key_authorization()),
            Challenge::TlsAlpn01 => {
                Proof::tls(host, challenge.key_authorization().digest().as_ref()).map_err(
                    |error| Failure::passing(format!("cannot create the proof: {error}")),
                )?
            }
        };
        shown.push(challenges.publish(host, proof));
        // The response may already tell that the validation has failed.
        challenge.set_ready().await.map_err(|error| match Failure::from(error) {
            failure @ Failure { cause: Cause::Refused, .. } => Failure {
                reason: format!("{}: {}", name(&kind(wanted)), failure.reason),
                ..failure
            },
            failure => failure,
        })?;
    }
    Ok(shown)
}

fn name(challenge: &ChallengeType) -> &'static str {
    match challenge {
        ChallengeType::Http01 => "http-01",
        ChallengeType::TlsAlpn01 => "tls-alpn-01",
        _ => "the challenge",
    }
}

fn kind(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// Returns the authority's error about a proof.
async fn validation_error(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let found = state
            .challenges
            .iter()
            .find_map(|challenge| Some((challenge, challenge.error.as_ref()?)));
        if let Some((challenge, problem)) = found {
            return Some(format!("{}: {}", name(&challenge.r#type), describe(problem)));
        }
    }
    None
}
