//! Private keys on other machines: both sides of the Keyless SSL protocol.
