//! A session with a token, logged in, with a key.

use std::ffi::c_ulong;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use cryptoki::context::Pkcs11;
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;

use super::der;
use super::error::Pkcs11Error;
use super::module;
use super::uri::Pkcs11Uri;
use crate::signer::public_key::PublicKey;
use crate::signer::scheme::{Hash, KeyKind, Scheme, fitted};

/// Object identifiers of the curves, in DER form, as in `CKA_EC_PARAMS`.
const P256: [u8; 10] = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: [u8; 7] = [6, 5, 0x2b, 0x81, 4, 0, 0x22];

/// Logins that tokens have refused. A token counts wrong PINs, and locks itself after some of them.
static REFUSED: Mutex<Vec<Attempt>> = Mutex::new(Vec::new());

#[derive(PartialEq, Eq)]
struct Attempt {
    module: PathBuf,
    serial: String,
    /// SHA-256 of the PIN.
    pin: Vec<u8>,
}

/// A session with the handle of a private key.
#[derive(Debug)]
pub(super) struct KeySession {
    session: Session,
    key: ObjectHandle,
}

/// Opens a key and makes a test signature. Returns the public key and the session.
pub(super) fn check(
    uri: &Pkcs11Uri,
    known: Option<PublicKey>,
) -> Result<(PublicKey, KeySession), Pkcs11Error> {
    let session = KeySession::open(uri)?;
    let public = match known {
        Some(public) => public,
        None => session.public_key()?,
    };
    let scheme = match public.kind() {
        KeyKind::Rsa => Scheme::RsaPkcs1(Hash::Sha256),
        KeyKind::P256 | KeyKind::P384 => Scheme::Ecdsa(Hash::Sha256),
    };
    let digest = scheme.digest(b"test");
    let signature = session.sign(public.kind(), scheme, digest.as_ref())?;
    if public.verifies(scheme, digest.as_ref(), &signature) {
        Ok((public, session))
    } else {
        Err(Pkcs11Error::WrongKey)
    }
}

impl KeySession {
    pub(super) fn open(uri: &Pkcs11Uri) -> Result<Self, Pkcs11Error> {
        let module = module::load(&uri.module)?;
        let slots = match module.get_slots_with_token() {
            // Another part of the process has finalized it.
            Err(Error::Pkcs11(RvError::CryptokiNotInitialized, _)) => {
                module::initialize(&module)?;
                module.get_slots_with_token()?
            }
            slots => slots?,
        };
        let slot = find_token(&module, slots, uri)?;
        let session = module.open_ro_session(slot)?;
        log_in(&module, slot, &session, uri)?;
        let mut template = vec![Attribute::Class(ObjectClass::PRIVATE_KEY)];
        template.extend(uri.object.as_ref().map(|label| Attribute::Label(label.clone().into())));
        template.extend(uri.id.as_ref().map(|id| Attribute::Id(id.clone())));
        match session.find_objects(&template)?[..] {
            [key] => Ok(Self { session, key }),
            ref other => {
                let label = module.get_token_info(slot)?.label().to_owned();
                Err(Pkcs11Error::KeyCount(other.len(), label))
            }
        }
    }

    /// Signs a digest with a key of this kind. The result is not verified.
    pub(super) fn sign(
        &self,
        kind: KeyKind,
        scheme: Scheme,
        digest: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let sign =
            |mechanism: Mechanism<'_>, data: &[u8]| self.session.sign(&mechanism, self.key, data);
        match scheme {
            Scheme::RsaPkcs1(hash) => sign(Mechanism::RsaPkcs, &der::digest_info(hash, digest)),
            Scheme::RsaPss(hash) => sign(Mechanism::RsaPkcsPss(pss(hash)), digest),
            Scheme::Ecdsa(_) => {
                let size = kind.coordinate_bytes().ok_or(Error::InvalidValue)?;
                sign(Mechanism::Ecdsa, &fitted(digest, size)).map(|fixed| der::ecdsa_der(&fixed))
            }
        }
    }

    fn public_key(&self) -> Result<PublicKey, Pkcs11Error> {
        let attributes =
            self.session.get_attributes(self.key, &[AttributeType::KeyType, AttributeType::Id])?;
        let id = attributes.iter().find_map(|attribute| match attribute {
            Attribute::Id(id) if !id.is_empty() => Some(id.clone()),
            _ => None,
        });
        if attributes.contains(&Attribute::KeyType(KeyType::RSA)) {
            return self.rsa_public_key(self.key);
        }
        if !attributes.contains(&Attribute::KeyType(KeyType::EC)) {
            return Err(Pkcs11Error::Unsupported);
        }
        // The private key does not have the point.
        let id = id.ok_or(Pkcs11Error::NoPublicKey)?;
        let template = [Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Id(id)];
        match self.session.find_objects(&template)?[..] {
            [public] => self.ec_public_key(public),
            _ => Err(Pkcs11Error::NoPublicKey),
        }
    }

    fn rsa_public_key(&self, object: ObjectHandle) -> Result<PublicKey, Pkcs11Error> {
        let wanted = [AttributeType::Modulus, AttributeType::PublicExponent];
        match &self.session.get_attributes(object, &wanted)?[..] {
            [Attribute::Modulus(modulus), Attribute::PublicExponent(exponent)] => {
                Ok(PublicKey::of_bits(KeyKind::Rsa, der::rsa_public_key(modulus, exponent)))
            }
            _ => Err(Pkcs11Error::NoPublicKey),
        }
    }

    fn ec_public_key(&self, object: ObjectHandle) -> Result<PublicKey, Pkcs11Error> {
        let wanted = [AttributeType::EcParams, AttributeType::EcPoint];
        let attributes = self.session.get_attributes(object, &wanted)?;
        let [Attribute::EcParams(curve), Attribute::EcPoint(point)] = &attributes[..] else {
            return Err(Pkcs11Error::NoPublicKey);
        };
        let kind = match &curve[..] {
            _ if curve[..] == P256 => KeyKind::P256,
            _ if curve[..] == P384 => KeyKind::P384,
            _ => return Err(Pkcs11Error::Unsupported),
        };
        // An octet string in DER form, which some modules leave out.
        let point = match &point[..] {
            [4, length, rest @ ..] if usize::from(*length) == rest.len() => rest,
            other => other,
        };
        Ok(PublicKey::of_bits(kind, point.to_vec()))
    }
}

fn pss(hash: Hash) -> PkcsPssParams {
    let (hash_alg, mgf, size): (_, _, c_ulong) = match hash {
        Hash::Sha256 => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, 32),
        Hash::Sha384 => (MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, 48),
        Hash::Sha512 => (MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, 64),
    };
    PkcsPssParams { hash_alg, mgf, s_len: size.into() }
}

fn find_token(module: &Pkcs11, slots: Vec<Slot>, uri: &Pkcs11Uri) -> Result<Slot, Pkcs11Error> {
    let mut labels = Vec::new();
    for slot in slots {
        let token = module.get_token_info(slot)?;
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        if is(&uri.token, token.label())
            && is(&uri.manufacturer, token.manufacturer_id())
            && is(&uri.serial, token.serial_number())
            && is(&uri.model, token.model())
            && uri.slot.is_none_or(|wanted| wanted == slot.id())
        {
            return Ok(slot);
        }
        labels.push(format!("{:?}", token.label()));
    }
    let found = if labels.is_empty() { "no token".to_owned() } else { labels.join(", ") };
    Err(Pkcs11Error::NoToken(found))
}

fn log_in(
    module: &Pkcs11,
    slot: Slot,
    session: &Session,
    uri: &Pkcs11Uri,
) -> Result<(), Pkcs11Error> {
    let token = module.get_token_info(slot)?;
    if !token.login_required() {
        return Ok(());
    }
    let pin = uri.pin()?;
    if pin.is_none() && !token.protected_authentication_path() {
        return Err(Pkcs11Error::Pin("the token needs a PIN, and the URI has none".to_owned()));
    }
    // One login at a time, so that a wrong PIN is not tried by several threads.
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let text = pin.as_deref().unwrap_or_default();
    let attempt = Attempt {
        module: uri.module.clone(),
        serial: token.serial_number().to_owned(),
        pin: digest(&SHA256, text.as_bytes()).as_ref().to_vec(),
    };
    if refused.contains(&attempt) {
        return Err(Pkcs11Error::Pin(
            "the token has refused this PIN; it is not tried again, so that the token is not locked"
                .to_owned(),
        ));
    }
    let login = match session.login(UserType::User, pin.map(AuthPin::from).as_ref()) {
        // A login counts for all sessions of the process.
        Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        other => other.map_err(Pkcs11Error::from),
    };
    match login {
        Err(error @ Pkcs11Error::Pin(_)) => {
            refused.push(attempt);
            Err(error)
        }
        other => other,
    }
}
