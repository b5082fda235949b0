//! Routes that are answered by an application over FastCGI.

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
use crate::client_address::client_address;
use crate::collecting::{Begun, Collecting};
use crate::fastcgi::{Asked, Script};
use crate::plan::text;
use crate::proxy::{RequestLine, UpstreamPlan, WorkerUpstream};
use crate::root::Effort;
use crate::scripts::{Found, Scripts};
use crate::spool::Full;
use crate::static_files::{FileHandler, answer_without_file, not_found, redirect_to_folder};
use crate::wanted::Wanted;

/// What a route asks.
pub(crate) struct ApplicationPlan {
    pub(crate) upstream: Arc<UpstreamPlan>,
    /// The folder of scripts; without one the application answers for all paths.
    pub(crate) scripts: Option<Arc<Scripts>>,
    /// What the application is told besides.
    pub(crate) variables: Arc<[(String, String)]>,
    /// Content that is collected before the application is asked.
    pub(crate) collecting: Collecting,
}

/// A route of this kind on one worker.
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
    /// The target in canonical form, before anything was taken away or rewritten.
    pub(crate) target: Uri,
    /// What was taken away from the path.
    pub(crate) prefix: Option<HeaderValue>,
    /// What the access log wants to know.
    pub(crate) note: Option<Note>,
}

impl ApplicationHandler {
    pub(crate) fn new(plan: &Arc<ApplicationPlan>, upstream: Rc<WorkerUpstream>, trusted_proxies: Arc<[IpNet]>) -> Self {
        let files = plan.scripts.as_ref().map(|scripts| Rc::new(scripts.files().handler()));
        Self { plan: plan.clone(), upstream, files, trusted_proxies }
    }

    /// Answers a request with what `finish` makes of the response.
    pub(crate) fn serve(
        self: Rc<Self>,
        head: Head,
        body: Incoming,
        responder: Responder,
        finish: impl FnOnce(Response) -> Response + 'static,
    ) {
        let turn = responder.handle().turn();
        if let (Some(scripts), Some(files)) = (&self.plan.scripts, &self.files)
            && let ControlFlow::Continue(wanted) = scripts.wanted(&head.uri)
            && let Ok(Found::File) = scripts.find(&wanted, Effort::Memory)
        {
            // As quick as where there are only files.
            let Head { method, uri, headers, peer, .. } = head;
            let request = Request { method, uri, headers, peer, upgrade: None, body };
            return files.serve_as(request, responder, finish);
        }
        responder.respond(async move { finish(self.answer(turn, head, body).await) });
    }

    /// The answer to a request.
    pub(crate) async fn answer<B>(&self, turn: u64, head: Head, body: B) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        // It has no other protocol to go on in, and nobody is shown what proxies add.
        if matches!(head.method, Method::CONNECT | Method::TRACE) {
            return crate::proxy::not_passed_on();
        }
        let script = if let (Some(scripts), Some(files)) = (&self.plan.scripts, &self.files) {
            match find(scripts, &head.uri).await {
                Ok(Found::Script(script)) => script,
                Ok(Found::File) => return files.answer(turn, head.method, head.uri, head.headers).await,
                Ok(Found::Folder) => return redirect_to_folder(&head.target),
                Ok(Found::Nothing) => return not_found(),
                Err(answer) => return *answer,
            }
        } else {
            // A route takes encoded slashes only where no other is for the path with these decoded.
            Script { path_info: percent_encoding::percent_decode_str(head.uri.path()).collect(), ..Script::default() }
        };
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (content, length) = match self.with_length(body, announced).await {
            Ok(content) => content,
            Err(answer) => return *answer,
        };
        let asked = self.asked(script, &head, length);
        let Head { method, uri, headers, peer, prefix, note, .. } = head;
        let line = RequestLine { method, uri, note };
        self.upstream.run(prefix.as_ref(), line, headers, &peer, content, &asked).await
    }

    /// The same for content without a length that is too large for memory.
    async fn spooled<B>(&self, mut body: Begun<B>) -> Result<(Body, u64), Response>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let mut spool = self.upstream.spool(self.plan.collecting.on_disk());
        let full = loop {
            let Some(frame) = body.frame().await else {
                match spool.finish().await {
                    Ok((content, length)) => return Ok((Body::stream(content), length)),
                    Err(error) => break Full::Disk(error),
                }
            };
            let piece = frame.map_err(|_| text(StatusCode::BAD_REQUEST, BROKEN_OFF))?.into_data().unwrap_or_default();
            if let Err(full) = spool.add(&piece).await {
                break full;
            }
        };
        Err(match full {
            Full::Request => text(
                StatusCode::LENGTH_REQUIRED,
                "so much content has to be sent with its length, as content-length; or the key collect_on_disk of php is raised\n",
            ),
            Full::All => busy("too much content without a length is under way\n"),
            Full::Disk(error) => {
                self.upstream.tell_of_spool(&error);
                busy("content without a length cannot be held\n")
            }
        })
    }

    fn asked(&self, script: Script, head: &Head, length: u64) -> Asked {
        // In `SCRIPT_NAME` nothing is encoded (RFC 3875, section 4.1.13), as in the rest of it and in `PATH_INFO`.
        let prefix = percent_encoding::percent_decode(head.prefix.as_ref().map_or(&b""[..], HeaderValue::as_bytes));
        let script = Script { name: prefix.chain(script.name.iter().copied()).collect(), ..script };
        let peer = &head.peer;
        Asked {
            script,
            target: head.target.clone(),
            client: client_address(peer.remote, &head.headers, &self.trusted_proxies),
            peer: peer.remote,
            protocol: peer.protocol,
            secure: peer.secure,
            is_trusted: self.trusted_proxies.iter().any(|network| network.contains(&peer.remote.ip().to_canonical())),
            length,
            variables: self.plan.variables.clone(),
        }
    }

    /// The content, and its length, which applications have to be told before. `announced`: what the request says of it, which the engine
    /// holds it to.
    ///
    /// It is collected first, so that clients that send slowly take none of the application's processes, and nothing runs for content that
    /// breaks off. What is too large for that goes through as it comes, or, where its length is not known, by way of the disk.
    async fn with_length<B>(&self, mut body: B, announced: Option<u64>) -> Result<(Body, u64), Box<Response>>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        if body.is_end_stream() {
            return Ok((Body::empty(), 0));
        }
        let collecting = &self.plan.collecting;
        if let Some(length) = announced.filter(|length| *length > collecting.most()) {
            return Ok((Body::stream(body), length));
        }
        let mut collected = collecting.begin();
        while let Some(frame) = body.frame().await {
            let broken_off = |_| Box::new(text(StatusCode::BAD_REQUEST, BROKEN_OFF));
            let piece = frame.map_err(broken_off)?.into_data().unwrap_or_default();
            match (collecting.add(&mut collected, &piece), announced) {
                (Ok(()), _) => {}
                (Err(_), Some(length)) => return Ok((Body::stream(Begun::new(collected, piece, body)), length)),
                (Err(_), None) => return self.spooled(Begun::new(collected, piece, body)).await.map_err(Box::new),
            }
        }
        let content = collected.into_bytes();
        let length = content.len() as u64;
        Ok((content.into(), length))
    }
}

const BROKEN_OFF: &str = "the request's content broke off\n";

fn busy(message: &'static str) -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, message).with_header(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// What a target is for, waiting for the disk if need be; or the answer where that cannot be told.
async fn find(scripts: &Arc<Scripts>, uri: &Uri) -> Result<Found, Box<Response>> {
    let wanted = match scripts.wanted(uri) {
        ControlFlow::Continue(wanted) => wanted,
        ControlFlow::Break(answer) => return Err(Box::new(answer)),
    };
    if let Ok(found) = scripts.find(&wanted, Effort::Memory) {
        return Ok(found);
    }
    let (scripts, wanted) = (scripts.clone(), Wanted::into_owned(wanted));
    let found: Result<Found, Errno> = unblock(move || scripts.find(&wanted, Effort::Disk)).await;
    found.map_err(|error| Box::new(answer_without_file(error, uri)))
}
