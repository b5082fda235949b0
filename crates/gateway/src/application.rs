//! Routes that are answered by an application over FastCGI, such as PHP.

pub(crate) mod collecting;
pub(crate) mod scripts;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use blocking::unblock;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::BodyExt as _;
use ipnet::IpNet;
use pronghorn_engine::{Body, BodyError, Incoming, Peer, Request, Responder, Response};
use rustix::io::Errno;

use crate::access_log::Note;
use crate::application::collecting::{BodyCollector, PartlyCollectedBody};
use crate::application::scripts::{Found, Scripts};
use crate::buffering::spool::LimitReached;
use crate::fastcgi::{RequestInfo, Script};
use crate::fields::client_address::client_address;
use crate::proxy::{RequestLine, UpstreamPlan, WorkerUpstream};
use crate::responses::text;
use crate::responses::{not_found, redirect_to_folder};
use crate::static_files::FileHandler;
use crate::static_files::errors::answer_without_file;
use crate::static_files::requested_file::RequestedFile;
use crate::static_files::root::Wait;

/// An application route, as all workers share it.
pub(crate) struct ApplicationPlan {
    pub(crate) upstream: Arc<UpstreamPlan>,
    /// The folder of scripts; without it the application answers all paths.
    pub(crate) scripts: Option<Arc<Scripts>>,
    /// Variables from the configuration, passed to the application.
    pub(crate) variables: Arc<[(String, String)]>,
    /// Limits of the request bodies that are collected before the application is called.
    pub(crate) collector: BodyCollector,
}

/// An application route on one worker.
pub(crate) struct ApplicationHandler {
    plan: Arc<ApplicationPlan>,
    upstream: Rc<WorkerUpstream>,
    files: Option<Rc<FileHandler>>,
    trusted_proxies: Arc<[IpNet]>,
}

/// The head of a request.
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    /// The target in canonical form, before `strip_prefix` and `rewrite`.
    pub(crate) target: Uri,
    /// The prefix that was stripped from the path.
    pub(crate) prefix: Option<HeaderValue>,
    /// Notes for the access log.
    pub(crate) note: Option<Note>,
}

impl ApplicationHandler {
    pub(crate) fn new(
        plan: &Arc<ApplicationPlan>,
        upstream: Rc<WorkerUpstream>,
        trusted_proxies: Arc<[IpNet]>,
    ) -> Self {
        let files = plan.scripts.as_ref().map(|scripts| Rc::new(scripts.files().handler()));
        Self { plan: plan.clone(), upstream, files, trusted_proxies }
    }

    /// Answers a request; `finish` changes the response before it is sent.
    pub(crate) fn serve(
        self: Rc<Self>,
        head: Head,
        body: Incoming,
        responder: Responder,
        finish: impl FnOnce(Response) -> Response + 'static,
    ) {
        let turn = responder.handle().turn();
        if let (Some(scripts), Some(files)) = (&self.plan.scripts, &self.files)
            && let ControlFlow::Continue(requested) = scripts.requested(&head.uri)
            && let Ok(Found::File) = scripts.find(&requested, Wait::CachedOnly)
        {
            // As fast as on a route with files only.
            let Head { method, uri, headers, peer, .. } = head;
            let request = Request { method, uri, headers, peer, upgrade: None, body };
            return files.serve_as(request, responder, finish);
        }
        responder.respond(async move { finish(self.answer(turn, head, body).await) });
    }

    /// Returns the response to a request.
    pub(crate) async fn answer<B>(&self, turn: u64, head: Head, body: B) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        // Applications support no upgrades, and TRACE would reveal the fields that proxies add.
        if matches!(head.method, Method::CONNECT | Method::TRACE) {
            return crate::proxy::not_passed_on();
        }
        let script = if let (Some(scripts), Some(files)) = (&self.plan.scripts, &self.files) {
            match find(scripts, &head.uri).await {
                Ok(Found::Script(script)) => script,
                Ok(Found::File) => {
                    return files.answer(turn, head.method, head.uri, head.headers).await;
                }
                Ok(Found::Folder) => return redirect_to_folder(&head.target),
                Ok(Found::Nothing) => return not_found(),
                Err(answer) => return *answer,
            }
        } else {
            // Decoding is safe: a route accepts encoded slashes only if no other route matches the
            // decoded path.
            Script {
                path_info: percent_encoding::percent_decode_str(head.uri.path()).collect(),
                ..Script::default()
            }
        };
        let announced =
            head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (content, length) = match self.with_length(body, announced).await {
            Ok(content) => content,
            Err(answer) => return *answer,
        };
        let asked = self.asked(script, &head, length);
        let Head { method, uri, headers, peer, prefix, note, .. } = head;
        let line = RequestLine { method, uri, note };
        self.upstream.run(prefix.as_ref(), line, headers, &peer, content, &asked).await
    }

    /// Collects a request body without a length in a file, when it is too large for memory.
    async fn spooled<B>(&self, mut body: PartlyCollectedBody<B>) -> Result<(Body, u64), Response>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let mut spool = self.upstream.spool(self.plan.collector.on_disk());
        let full = loop {
            let Some(frame) = body.frame().await else {
                match spool.finish().await {
                    Ok((content, length)) => return Ok((Body::stream(content), length)),
                    Err(error) => break LimitReached::Disk(error),
                }
            };
            let piece = frame
                .map_err(|_| text(StatusCode::BAD_REQUEST, BROKEN_OFF))?
                .into_data()
                .unwrap_or_default();
            if let Err(full) = spool.add(&piece).await {
                break full;
            }
        };
        Err(match full {
            LimitReached::Request => text(
                StatusCode::LENGTH_REQUIRED,
                "request body too large without content-length: send the length, or raise \
                `collect_on_disk` of php\n",
            ),
            LimitReached::All => busy("too many request bodies without content-length at once\n"),
            LimitReached::Disk(error) => {
                self.upstream.tell_of_spool(&error);
                busy("cannot buffer a request body without content-length\n")
            }
        })
    }

    fn asked(&self, script: Script, head: &Head, length: u64) -> RequestInfo {
        // `SCRIPT_NAME` is not URL-encoded (RFC 3875, section 4.1.13), so the prefix is decoded, as
        // the rest of it and `PATH_INFO` are.
        let prefix = percent_encoding::percent_decode(
            head.prefix.as_ref().map_or(&b""[..], HeaderValue::as_bytes),
        );
        let script = Script { name: prefix.chain(script.name.iter().copied()).collect(), ..script };
        let peer = &head.peer;
        RequestInfo {
            script,
            target: head.target.clone(),
            client: client_address(peer.remote, &head.headers, &self.trusted_proxies),
            peer: peer.remote,
            protocol: peer.protocol,
            secure: peer.secure,
            is_trusted: self
                .trusted_proxies
                .iter()
                .any(|network| network.contains(&peer.remote.ip().to_canonical())),
            length,
            variables: self.plan.variables.clone(),
        }
    }

    /// Returns the request body and its length, which must be passed to the application in advance.
    /// `announced` is the request's content-length, which the engine enforces.
    ///
    /// The body is collected first, so that slow clients occupy no process of the application, and
    /// no script runs for a body that is cut off. A body that is too large for that is streamed,
    /// or, without a content-length, goes through a file.
    async fn with_length<B>(
        &self,
        mut body: B,
        announced: Option<u64>,
    ) -> Result<(Body, u64), Box<Response>>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        if body.is_end_stream() {
            return Ok((Body::empty(), 0));
        }
        let collector = &self.plan.collector;
        if let Some(length) = announced.filter(|length| *length > collector.most()) {
            return Ok((Body::stream(body), length));
        }
        let mut collected = collector.begin();
        while let Some(frame) = body.frame().await {
            let broken_off = |_| Box::new(text(StatusCode::BAD_REQUEST, BROKEN_OFF));
            let piece = frame.map_err(broken_off)?.into_data().unwrap_or_default();
            match (collector.add(&mut collected, &piece), announced) {
                (Ok(()), _) => {}
                (Err(_), Some(length)) => {
                    return Ok((
                        Body::stream(PartlyCollectedBody::new(collected, piece, body)),
                        length,
                    ));
                }
                (Err(_), None) => {
                    return self
                        .spooled(PartlyCollectedBody::new(collected, piece, body))
                        .await
                        .map_err(Box::new);
                }
            }
        }
        let content = collected.into_bytes();
        let length = content.len() as u64;
        Ok((content.into(), length))
    }
}

const BROKEN_OFF: &str = "request body cut off\n";

fn busy(message: &'static str) -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, message)
        .with_header(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// Returns the script, file or folder of a target, waiting for the disk if needed, or an error
/// response.
async fn find(scripts: &Arc<Scripts>, uri: &Uri) -> Result<Found, Box<Response>> {
    let requested = match scripts.requested(uri) {
        ControlFlow::Continue(requested) => requested,
        ControlFlow::Break(answer) => return Err(Box::new(answer)),
    };
    if let Ok(found) = scripts.find(&requested, Wait::CachedOnly) {
        return Ok(found);
    }
    let (scripts, requested) = (scripts.clone(), RequestedFile::into_owned(requested));
    let found: Result<Found, Errno> = unblock(move || scripts.find(&requested, Wait::Disk)).await;
    found.map_err(|error| Box::new(answer_without_file(error, uri)))
}
