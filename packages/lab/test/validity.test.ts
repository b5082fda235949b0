import assert from 'node:assert/strict';
import test from 'node:test';
import type { LinkReport } from '../src/run/link-report.js';
import type { Evidence } from '../src/samples/validity.js';
import { invalidReasons } from '../src/samples/validity.js';
import { recorded, type Mutable } from './recorded.js';

const PAGE_BYTES = 26_000;
const ARMS = ['h1', 'h2', 'h3'] as const;
type ArmName = (typeof ARMS)[number];

/** The evidence of a real load, mutable for changes. */
type Linked = Mutable<Evidence & { readonly link: LinkReport }>;
function judge(arm: ArmName, change: (evidence: Linked) => void = () => undefined): string[] {
  const {
    protocol,
    congestion,
    visit,
    server,
    browser,
    link,
    serverCounters: counters,
  } = recorded(arm);
  const asked = { name: arm, protocol, congestion, visit, server };
  const evidence = { arm: asked, pageBytes: PAGE_BYTES, browser, link, counters } as Linked;
  change(evidence);
  return invalidReasons(evidence);
}

function first<T>(items: readonly T[]): T {
  assert.ok(items[0] !== undefined);
  return items[0];
}

test('load whose server never answered is valid, whatever the browser shows instead', () => {
  const reasons = judge('h3', ({ browser, link }) => {
    const document = {
      ...first(browser.requests),
      error: 'net::ERR_QUIC_PROTOCOL_ERROR',
      encodedDataLength: 250_574,
    };
    delete document.protocol;
    delete document.status;
    Object.assign(browser, { outcome: 'timeout', requests: [document], resources: [] });
    delete browser.navigation;
    for (const flow of link.flows) flow.down.bytes = 0;
  });
  assert.deepEqual(reasons, []);
});

test("browser's own error page is not a response, whatever the arm", () => {
  for (const arm of ARMS) {
    const reasons = judge(arm, ({ browser, link }) => {
      const { requestId, url, type, priority } = first(browser.requests);
      // As when it is loaded once more, without a known failure.
      const shown = { requestId, url, type, priority, finished: true, encodedDataLength: 250_574 };
      Object.assign(browser, { outcome: 'failed', requests: [shown], resources: [] });
      delete browser.navigation;
      for (const flow of link.flows) flow.down.bytes = 700;
    });
    assert.deepEqual(reasons, [], arm);
  }
});

test('visit whose handshake never ended is an outcome, and one that did not resume is invalid', () => {
  const none = {
    tcpConnections: 3,
    quicConnections: 0,
    tcpResumed: 0,
    quicResumed: 0,
    earlyRequests: 0,
    quicMigrations: 0,
  };
  for (const arm of ARMS) {
    const resumed = (answered: boolean): string[] =>
      judge(arm, (evidence) => {
        const { browser } = evidence;
        evidence.arm = { ...evidence.arm, visit: 'resumed' };
        evidence.counters = none;
        if (answered) return;
        Object.assign(browser, { outcome: 'failed', requests: [], resources: [] });
        delete browser.navigation;
      });
    assert.deepEqual(resumed(false), [], arm);
    assert.deepEqual(resumed(true), ['no session was resumed'], arm);
  }
});

for (const arm of ARMS) {
  test(`recorded ${arm} load is valid`, () => {
    assert.deepEqual(judge(arm), []);
  });

  test(`${arm} load with one resource of another protocol in the timeline is invalid`, () => {
    const reasons = judge(arm, ({ browser }) => {
      first(browser.resources).nextHopProtocol = 'hq';
    });
    assert.deepEqual(reasons, ['1 of 6 timeline entries have the protocol hq']);
  });

  test(`${arm} load whose document came by another protocol is invalid`, () => {
    const reasons = judge(arm, ({ browser }) => {
      assert.ok(browser.navigation);
      browser.navigation.nextHopProtocol = 'hq';
    });
    assert.equal(reasons.length, 1);
  });

  test(`${arm} load with one request of another protocol in the developer tools is invalid`, () => {
    const reasons = judge(arm, ({ browser }) => {
      first(browser.requests).protocol = 'hq';
    });
    assert.deepEqual(reasons, ['1 of 6 requests used hq according to the developer tools']);
  });

  test(`${arm} load with an answered request without a protocol is invalid`, () => {
    const reasons = judge(arm, ({ browser }) => {
      delete first(browser.requests).protocol;
    });
    assert.match(first(reasons), /used no protocol/);
  });

  test(`${arm} load with bytes of the other transport on the link is invalid`, () => {
    const reasons = judge(arm, ({ link }) => {
      const flow = first(link.flows.filter(({ far_port: port }) => port === 443));
      const other = structuredClone(flow);
      other.protocol = arm === 'h3' ? 'tcp' : 'udp';
      other.up.bytes = 40;
      other.down.bytes = 0;
      link.flows.push(other);
    });
    assert.deepEqual(reasons, [
      `40 bytes of ${arm === 'h3' ? 'TCP' : 'UDP'} port 443 crossed the link`,
    ]);
  });

  test(`${arm} load with fragments of the other transport is invalid`, () => {
    const reasons = judge(arm, ({ link }) => {
      const fragments = structuredClone(first(link.flows));
      link.flows.push({
        ...fragments,
        protocol: arm === 'h3' ? 'tcp' : 'udp',
        near_port: null,
        far_port: null,
      });
    });
    assert.equal(reasons.length, 1);
  });

  test(`${arm} load with fewer bytes on the link than in the page is invalid`, () => {
    const reasons = judge(arm, ({ link }) => {
      for (const flow of link.flows) flow.down.bytes = 0;
      first(link.flows.filter(({ far_port: port }) => port === 443)).down.bytes = PAGE_BYTES;
    });
    assert.match(first(reasons), /fewer than the \d+ bytes of the responses/);
  });

  test(`${arm} load under another congestion control than the arm's is invalid`, () => {
    const reasons = judge(arm, ({ link }) => {
      link.tcp_congestion.far = 'bbr';
    });
    assert.deepEqual(reasons, ['TCP used cubic at the client and bbr at the server, not cubic']);
  });
}

for (const counter of [
  'tun_drops',
  'packets_overflowed',
  'packets_oversized',
  'packets_write_failed',
] as const) {
  test(`load with ${counter} is invalid in either direction`, () => {
    for (const direction of ['up', 'down'] as const) {
      const reasons = judge('h2', ({ link }) => {
        link[direction][counter] = 2;
      });
      assert.deepEqual(reasons, [
        "2 packets were lost at the link's devices, other than by its profile",
      ]);
    }
  });
}

test('load with packets that belong to no listed flow is invalid', () => {
  for (const table of ['flows_beyond_table', 'unparsed'] as const) {
    const reasons = judge('h3', ({ link }) => {
      link[table].down.packets = 3;
    });
    assert.deepEqual(reasons, ['the link carried 3 packets that it could not assign to a flow']);
  }
});

test('each broken rule is reported', () => {
  const reasons = judge('h3', ({ browser, link }) => {
    first(browser.requests).protocol = 'h2';
    link.down.packets_write_failed = 1;
    link.flows_beyond_table.up.packets = 1;
  });
  assert.equal(reasons.length, 3);
});

test('losses and queue drops that the profile configures break no rule', () => {
  const reasons = judge('h3', ({ link }) => {
    link.up.packets_lost = 40;
    link.down.packets_queue_dropped = 9;
  });
  assert.deepEqual(reasons, []);
});

test('load that timed out before any response is valid unless data contradicts its arm', () => {
  const timedOut = (link: (evidence: Linked) => void): string[] =>
    judge('h3', (evidence) => {
      const { browser } = evidence;
      browser.outcome = 'timeout';
      delete browser.navigation;
      browser.resources = [];
      browser.requests = browser.requests.slice(0, 1).map(({ requestId, url, type, priority }) => {
        return { requestId, url, type, priority, finished: false };
      });
      link(evidence);
    });
  assert.deepEqual(
    timedOut(({ link }) => {
      for (const flow of link.flows) flow.down.bytes = 0;
    }),
    [],
  );
  const fellBack = timedOut(({ link }) => {
    for (const flow of link.flows) flow.protocol = 'tcp';
  });
  assert.match(first(fellBack), /bytes of TCP port 443 crossed the link/);
});

test('data URLs in the timeline need no protocol', () => {
  const reasons = judge('h2', ({ browser }) => {
    browser.resources.push({
      ...first(browser.resources),
      name: 'data:,x',
      nextHopProtocol: 'data',
    });
  });
  assert.deepEqual(reasons, []);
});

test('page that is loaded from its own server has no link to check, and only its own host is judged', () => {
  const { browser } = recorded('h3');
  const other = { ...first(browser.requests), url: 'https://elsewhere.test/', protocol: 'h2' };
  const asked = {
    name: 'h3',
    protocol: 'h3',
    congestion: 'cubic',
    visit: 'first',
    server: 'pronghorn',
  } as const;
  const evidence = (requests: typeof browser.requests): Evidence => ({
    arm: asked,
    pageBytes: undefined,
    browser: { ...browser, requests },
    link: undefined,
    origin: 'bench.test',
    counters: undefined,
  });
  assert.deepEqual(invalidReasons(evidence([...browser.requests, other])), []);
  const own = { ...other, url: 'https://bench.test/other' };
  assert.match(
    first(invalidReasons(evidence([...browser.requests, own]))),
    /1 of 7 requests used h2/,
  );
});
