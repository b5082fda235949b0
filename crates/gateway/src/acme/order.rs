//! One order, from the first request to the chain.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{
    AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};

use super::Settings;
use super::authority::{Answer, Authority, Failure, line, words};
use super::challenges::{Challenges, Proof, Shown};
use super::slot::Slot;
use crate::config::AcmeChallenge;

/// How long an authority has to look for a proof, and to make a certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(Duration::from_secs(120));

/// Orders a certificate; what comes is its key and its chain as PEM text. `turn`: which of the challenges to try first.
pub(super) async fn order(
    authority: &Authority,
    settings: &Settings,
    challenges: &Arc<Challenges>,
    slot: &Slot,
    turn: usize,
) -> Result<String, Failure> {
    let host = slot.host();
    has_profile(authority, settings)?;
    let mut order = begin(authority, settings, slot).await?;
    let proofs = prove(&mut order, settings, challenges, host, turn).await?;
    if !matches!(order.state().status, OrderStatus::Ready) {
        match order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Ready) => {}
            // It is not about the proofs, and nothing more is asked of an authority that wants to be left alone.
            Err(error) if authority.asked().is_some() || matches!(error, Error::Other(_)) => return Err(error.into()),
            ready => {
                let reason = objection(&mut order).await;
                let default = || Failure::refused("the authority calls the order invalid");
                return Err(reason.map(Failure::refused).or_else(|| ready.err().map(Failure::from)).unwrap_or_else(default));
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
    let chain = order.poll_certificate(&PATIENCE).await?;
    Ok(key.serialize_pem() + &chain)
}

/// Says which certificate it is to replace, where the authority wants to know (RFC 9773), and does without if that is held against us.
async fn begin(authority: &Authority, settings: &Settings, slot: &Slot) -> Result<Order, Failure> {
    let identifiers = [Identifier::Dns(slot.host().to_owned())];
    let new = || {
        let new = NewOrder::new(&identifiers);
        settings.acme.profile.as_deref().map_or_else(|| NewOrder::new(&identifiers), |profile| new.profile(profile))
    };
    if let Some(before) = identifier(slot) {
        match authority.account.new_order(&new().replaces(before)).await {
            Ok(order) => return Ok(order),
            Err(Error::Api(problem)) if is_final(&problem) => return Err(Error::Api(problem).into()),
            Err(error @ Error::Other(_)) if error.is_not_of_the_order() => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(authority.account.new_order(&new()).await?)
}

/// Whether it would be the same without what it is to replace.
fn is_final(problem: &instant_acme::Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ["rateLimited", "serverInternal", "accountDoesNotExist", "badNonce", "unauthorized"].iter().any(|end| kind.ends_with(end))
}

trait Source {
    fn is_not_of_the_order(&self) -> bool;
}

impl Source for Error {
    fn is_not_of_the_order(&self) -> bool {
        matches!(self, Error::Other(source) if source.is::<pronghorn_client::Error>() || source.is::<Answer>())
    }
}

/// Who asks for a profile that the authority does not list is only refused.
fn has_profile(authority: &Authority, settings: &Settings) -> Result<(), Failure> {
    let Some(wanted) = settings.acme.profile.as_deref() else { return Ok(()) };
    let mut listed: Vec<_> = authority.account.profiles().map(|profile| profile.name).collect();
    if listed.contains(&wanted) {
        return Ok(());
    }
    listed.sort_unstable();
    let has = if listed.is_empty() { "no profiles".to_owned() } else { line(&listed.join(", ")) };
    Err(Failure::refused(format!("the authority has no profile {wanted:?}: it has {has}")))
}

/// The certificate that is there, as an authority knows it; `None` for one that has run out.
fn identifier(slot: &Slot) -> Option<CertificateIdentifier<'static>> {
    let (key, lifetime) = (slot.key()?, slot.lifetime()?);
    let identifier = CertificateIdentifier::try_from(key.end_entity_cert().ok()?).ok()?;
    (lifetime.until > SystemTime::now()).then(|| identifier.into_owned())
}

/// When the authority wants the certificate to be renewed, and when to ask again.
pub(super) async fn window(authority: &Authority, slot: &Slot) -> Result<((SystemTime, SystemTime), Duration), Failure> {
    let identifier = identifier(slot).ok_or_else(|| Failure::refused("there is no certificate to be renewed"))?;
    let (renewal, again) = authority.account.renewal_info(&identifier).await?;
    let window = renewal.suggested_window;
    Ok(((window.start.into(), window.end.into()), again))
}

/// Shows what the authority looks for, as long as what is returned is kept.
async fn prove(
    order: &mut Order,
    settings: &Settings,
    challenges: &Arc<Challenges>,
    host: &str,
    turn: usize,
) -> Result<Vec<Shown>, Failure> {
    let mut shown = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let offers = |wanted: &AcmeChallenge| authorization.challenges.iter().any(|one| one.r#type == kind(*wanted));
        let wanted = settings.challenges.iter().cycle().skip(turn).take(settings.challenges.len());
        let Some(wanted) = wanted.copied().find(|one| offers(one)) else {
            return Err(Failure::refused("the authority offers none of the challenges that can be answered here"));
        };
        let Some(mut challenge) = authorization.challenge(kind(wanted)) else { continue };
        let proof = match wanted {
            AcmeChallenge::Http01 => Proof::http(&challenge.token, &challenge.key_authorization()),
            AcmeChallenge::TlsAlpn01 => Proof::tls(host, challenge.key_authorization().digest().as_ref())
                .map_err(|error| Failure::passing(format!("the proof cannot be made: {error}")))?,
        };
        shown.push(challenges.show(host, proof));
        challenge.set_ready().await?;
    }
    Ok(shown)
}

fn kind(challenge: AcmeChallenge) -> ChallengeType {
    match challenge {
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// What the authority did not like about a proof.
async fn objection(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let found = state.challenges.iter().find_map(|challenge| Some((challenge, challenge.error.as_ref()?)));
        if let Some((challenge, problem)) = found {
            let kind = match challenge.r#type {
                ChallengeType::Http01 => "http-01",
                ChallengeType::TlsAlpn01 => "tls-alpn-01",
                _ => "the challenge",
            };
            return Some(format!("{kind}: {}", words(problem)));
        }
    }
    None
}
