//! TLS sessions that several servers share in Redis, sealed.
