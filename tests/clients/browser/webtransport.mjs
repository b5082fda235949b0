// Opens WebTransport sessions in a headless browser and prints the results, as one JSON object.
//
// usage: node webtransport.mjs '{"origin": …, "hash": base64 of the certificate's SHA-256, and options of launch.mjs}'
import { launch } from './launch.mjs';

const { origin, hash, timeoutMs = 60_000, ...options } = JSON.parse(process.argv[2]);

const browser = await launch(options);
try {
  const page = await browser.newPage();
  // The page's own origin is trusted by its key, the sessions by the hash of the certificate.
  await page.goto(`${origin}/`, { timeout: timeoutMs });
  const seen = await page.evaluate(
    async (origin, hash) => {
      const value = Uint8Array.from(atob(hash), (letter) => letter.charCodeAt(0));
      const text = (bytes) => new TextDecoder().decode(bytes);
      const bytes = (string) => new TextEncoder().encode(string);
      const open = async (path) => {
        const session = new WebTransport(origin + path, { serverCertificateHashes: [{ algorithm: 'sha-256', value }] });
        await session.ready;
        return session;
      };
      const all = async (readable) => new Uint8Array(await new Response(readable).arrayBuffer());
      const send = async (writable, data) => {
        const writer = writable.getWriter();
        await writer.write(data);
        await writer.close();
      };
      const echoed = async (session, data) => {
        const stream = await session.createBidirectionalStream();
        const [back] = await Promise.all([all(stream.readable), send(stream.writable, data)]);
        if (back.length !== data.length || back.some((byte, place) => byte !== data[place])) throw new Error('not what was sent');
        return back.length;
      };

      const session = await open('/echo');
      const datagrams = [];
      const writer = (session.datagrams.writable ?? session.datagrams.createWritable()).getWriter();
      const reader = session.datagrams.readable.getReader();
      for (const sent of ['one', 'two', 'three']) {
        await writer.write(bytes(sent));
        datagrams.push(text((await reader.read()).value));
      }
      const bidi = [];
      for (const size of [0, 1, 100_000]) bidi.push(await echoed(session, Uint8Array.from({ length: size }, (_, place) => place * 7)));
      await send(await session.createUnidirectionalStream(), bytes('one way'));
      const uni = text(await all((await session.incomingUnidirectionalStreams.getReader().read()).value));
      const each = Array.from({ length: 80 }, (_, number) => echoed(session, bytes(`stream ${number}`)));
      const many = (await Promise.all(each)).length;

      const broken = await session.createBidirectionalStream();
      const half = broken.writable.getWriter();
      await half.write(bytes('half'));
      const answer = broken.readable.getReader();
      await answer.read();
      half.abort(new WebTransportError({ message: 'enough', streamErrorCode: 77 }));
      const reset = await answer.read().then(
        () => null,
        (error) => ({ source: error.source, code: error.streamErrorCode }),
      );
      session.close({ closeCode: 99, reason: 'good bye' });
      await session.closed;

      const greeted = await open('/greet');
      const greeting = text(await all((await greeted.incomingUnidirectionalStreams.getReader().read()).value));
      const asked = (await greeted.incomingBidirectionalStreams.getReader().read()).value;
      const question = text(await all(asked.readable));
      // Before the response, after which this session ends. Firefox fetches on another connection, which
      // may be ahead of the session's.
      let last = '';
      for (let tries = 0; tries < 600 && !last.includes('code 99'); tries++) {
        if (tries > 0) await new Promise((resolve) => setTimeout(resolve, 50));
        last = await (await fetch('/last')).text();
      }
      await send(asked.writable, bytes('the browser, grüße')).catch(() => {});
      const { closeCode, reason } = await greeted.closed;

      const refused = await open('/nowhere').then(
        () => 'accepted',
        (error) => error.name,
      );
      const greetings = { uni: greeting, bidi: question };
      return { datagrams, bidi, uni, many, reset, greetings, closedByServer: { closeCode, reason }, last, refused };
    },
    origin,
    hash,
  );
  process.stdout.write(JSON.stringify({ version: await browser.version(), ...seen }) + '\n');
} finally {
  await browser.close();
}
