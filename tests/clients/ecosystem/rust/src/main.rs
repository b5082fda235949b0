//! Runs the scenarios of `tests/e2e/test_ecosystem.py` with the crate reqwest.
//!
//! usage: ecosystem-rust CLIENT PROTOCOL SCENARIO ORIGIN CA FILE TAG

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream;
use reqwest::{Body, Certificate, Client, Method, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Semaphore;

const MIB: usize = 1 << 20;
const CANCELLED: usize = 4;
const BYSTANDERS: u32 = 3;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, protocol, scenario, origin, ca, file, tag] = arguments.as_slice() else {
        return Err("usage: ecosystem-rust CLIENT PROTOCOL SCENARIO ORIGIN CA FILE TAG".into());
    };
    if client != "reqwest" {
        return Err(format!("unknown client `{client}`").into());
    }
    let runner = Runner {
        client: connect(protocol, &std::fs::read(ca)?)?,
        origin: origin.clone(),
        tag: tag.clone(),
        content: std::fs::read(file)?,
    };
    let answers = Arc::new(runner).run(scenario).await?;
    println!("{}", json!({ "answers": answers }));
    Ok(())
}

/// Makes a client with the library's defaults and the certificate authority of the tests.
fn connect(protocol: &str, ca: &[u8]) -> Result<Client, Failure> {
    let builder = Client::builder().tls_certs_only([Certificate::from_pem(ca)?]);
    let builder = if protocol == "2" { builder } else { builder.http1_only() };
    Ok(builder.build()?)
}

/// A client and its site.
struct Runner {
    client: Client,
    origin: String,
    tag: String,
    content: Vec<u8>,
}

impl Runner {
    async fn run(self: Arc<Self>, scenario: &str) -> Result<Vec<Value>, Failure> {
        if let Some(seconds) = scenario.strip_prefix("idle-") {
            let first = self.get("/small.txt").await?;
            tokio::time::sleep(Duration::from_secs(seconds.parse()?)).await;
            return Ok(vec![first, self.get("/small.txt").await?]);
        }
        Ok(match scenario {
            "small" => vec![self.get("/small.txt").await?, self.get("/small.txt").await?],
            "download" => vec![self.get("/large.bin").await?],
            "upload" => vec![self.post("/upload", self.content.clone().into()).await?],
            "stream" => vec![self.post("/upload", self.pieces()).await?],
            "refused" => {
                let refusal = self.post("/forbidden", self.pieces()).await?;
                vec![refusal, self.get("/small.txt").await?]
            }
            "cancel" => self.cancel().await?,
            "shutdown" => self.shutdown().await?,
            _ => return Err(format!("unknown scenario `{scenario}`").into()),
        })
    }

    async fn send(&self, method: Method, path: &str, body: Body) -> Result<Response, Failure> {
        let url = format!("{}{path}?{}", self.origin, self.tag);
        Ok(self.client.request(method, url).body(body).send().await?)
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        Answer::to(self.send(Method::GET, path, Body::default()).await?).finish().await
    }

    async fn post(&self, path: &str, body: Body) -> Result<Value, Failure> {
        Answer::to(self.send(Method::POST, path, body).await?).finish().await
    }

    /// Returns the content without a known length.
    fn pieces(&self) -> Body {
        let pieces: Vec<_> = self.content.chunks(65536).map(|piece| Ok(piece.to_vec())).collect();
        Body::wrap_stream(stream::iter(pieces.into_iter().collect::<Vec<Result<_, Failure>>>()))
    }

    /// The bystanders read slowly until the other downloads are cancelled, so that they are still
    /// in progress.
    async fn cancel(self: Arc<Self>) -> Result<Vec<Value>, Failure> {
        // A connection that all can share.
        let first = self.get("/small.txt").await?;
        let started = Arc::new(Semaphore::new(0));
        let cancelled = Arc::new(AtomicBool::new(false));
        let bystanders: Vec<_> = (0..BYSTANDERS)
            .map(|_| {
                let (runner, started, cancelled) =
                    (Arc::clone(&self), Arc::clone(&started), Arc::clone(&cancelled));
                tokio::spawn(async move { runner.bystander(&started, &cancelled).await })
            })
            .collect();
        let _ = started.acquire_many(BYSTANDERS).await?;
        try_join_all((0..CANCELLED).map(|_| self.cancel_one())).await?;
        cancelled.store(true, Ordering::Relaxed);
        let mut answers = vec![first];
        for bystander in bystanders {
            answers.push(bystander.await??);
        }
        answers.push(self.get("/small.txt").await?);
        Ok(answers)
    }

    async fn bystander(
        &self,
        started: &Semaphore,
        cancelled: &AtomicBool,
    ) -> Result<Value, Failure> {
        let response = self.send(Method::GET, "/large.bin", Body::default()).await;
        started.add_permits(1);
        let mut answer = Answer::to(response?);
        let mut paused_at = 0;
        while answer.read().await? {
            if !cancelled.load(Ordering::Relaxed) && answer.size / MIB > paused_at {
                paused_at = answer.size / MIB;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(answer.report())
    }

    /// Reads the first bytes; dropping the response cancels it.
    async fn cancel_one(&self) -> Result<(), Failure> {
        let mut answer = Answer::to(self.send(Method::GET, "/large.bin", Body::default()).await?);
        while answer.size < 65536 && answer.read().await? {}
        Ok(())
    }

    /// Reads the first bytes, reports it, and continues when it gets a line.
    async fn shutdown(&self) -> Result<Vec<Value>, Failure> {
        let mut answer = Answer::to(self.send(Method::GET, "/large.bin", Body::default()).await?);
        answer.read().await?;
        println!("reading");
        std::io::stdout().flush()?;
        BufReader::new(tokio::io::stdin()).read_line(&mut String::new()).await?;
        Ok(vec![answer.finish().await?])
    }
}

/// A response and the part of its content that was read.
struct Answer {
    response: Response,
    digest: Sha256,
    size: usize,
    text: Vec<u8>,
}

impl Answer {
    fn to(response: Response) -> Self {
        Self { response, digest: Sha256::new(), size: 0, text: Vec::new() }
    }

    /// Reads the next piece; returns whether there was one.
    async fn read(&mut self) -> Result<bool, Failure> {
        let Some(piece) = self.response.chunk().await? else { return Ok(false) };
        self.digest.update(&piece);
        self.size += piece.len();
        if self.size < 1000 {
            self.text.extend_from_slice(&piece);
        }
        Ok(true)
    }

    async fn finish(mut self) -> Result<Value, Failure> {
        while self.read().await? {}
        Ok(self.report())
    }

    fn report(self) -> Value {
        json!({
            "status": self.response.status().as_u16(),
            "protocol": format!("{:?}", self.response.version()),
            "bytes": self.size,
            "sha256": hex(&self.digest.finalize()),
            "text": String::from_utf8_lossy(&self.text),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
