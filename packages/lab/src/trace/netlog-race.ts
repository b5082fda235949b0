import { dependencyIn, numberIn, textIn, type NetLogEvent } from './netlog-events.js';

export const RACE_EVENTS = [
  'HTTP_STREAM_JOB_CONTROLLER',
  'HTTP_STREAM_JOB_CONTROLLER_ALT_SVC_FOUND',
  'HTTP_STREAM_JOB',
  'HTTP_STREAM_JOB_DELAYED',
  'HTTP_STREAM_JOB_BOUND_TO_REQUEST',
  'HOST_RESOLVER_DNS_TASK_EXTRACTION_RESULTS',
] as const;

/** A request for which the browser raced QUIC against TCP. */
export interface Race {
  readonly url: string;
  readonly at: number;
  /** Why QUIC was tried: `dns_alpn_h3` for an HTTPS record, `alternative` for Alt-Svc. */
  readonly because: string;
  /** How long the TCP job was delayed, in milliseconds. */
  readonly heldBackMs?: number;
  /** Whether the Alt-Svc entry was already marked as broken. */
  readonly markedBroken: boolean;
  /** Undefined if neither established a connection. */
  readonly wonBy?: 'quic' | 'tcp';
  readonly decidedAt?: number;
  /** The protocols in the HTTPS records that the browser had received by then, for any host. */
  readonly httpsRecords: readonly string[];
}

interface Controller {
  readonly url: string;
  readonly at: number;
  heldBackMs?: number;
  markedBroken: boolean;
  because?: string;
  hasTcp: boolean;
  wonBy?: 'quic' | 'tcp';
  decidedAt?: number;
}

/** Collects the races of a NetLog. */
export class Races {
  readonly #controllers = new Map<number, Controller>();
  readonly #jobs = new Map<number, { readonly controller: Controller; readonly quic: boolean }>();
  readonly #records = new Set<string>();

  onEvent(event: NetLogEvent): void {
    switch (event.name) {
      case 'HTTP_STREAM_JOB_CONTROLLER':
        // A preconnected connection is not a request and binds to none.
        if (event.phase !== 'begin' || event.params.is_preconnect === true) return;
        this.#controllers.set(event.source, {
          url: textIn(event, 'url') ?? '',
          at: event.at,
          markedBroken: false,
          hasTcp: false,
        });
        return;
      case 'HTTP_STREAM_JOB_CONTROLLER_ALT_SVC_FOUND': {
        const controller = this.#controllers.get(event.source);
        if (controller !== undefined) controller.markedBroken ||= event.params.is_broken === true;
        return;
      }
      case 'HTTP_STREAM_JOB':
        if (event.phase === 'begin') this.#onJob(event);
        return;
      case 'HTTP_STREAM_JOB_DELAYED': {
        const controller = this.#controllers.get(event.source);
        const delay = numberIn(event, 'delay');
        if (controller !== undefined && delay !== undefined) controller.heldBackMs ??= delay;
        return;
      }
      case 'HTTP_STREAM_JOB_BOUND_TO_REQUEST': {
        const job = this.#jobs.get(event.source);
        if (job === undefined || job.controller.wonBy !== undefined) return;
        job.controller.wonBy = job.quic ? 'quic' : 'tcp';
        job.controller.decidedAt = event.at;
        return;
      }
      case 'HOST_RESOLVER_DNS_TASK_EXTRACTION_RESULTS':
        for (const protocol of httpsProtocols(event)) this.#records.add(protocol);
    }
  }

  /**
   * Returns the requests with a job of each kind. Once a QUIC connection exists, the browser does
   * not race any more.
   */
  races(): Race[] {
    const httpsRecords = [...this.#records];
    return [...this.#controllers.values()].flatMap((controller) => {
      const { hasTcp, because, heldBackMs, wonBy, decidedAt, url, at, markedBroken } = controller;
      if (!hasTcp || because === undefined) return [];
      return {
        url,
        at,
        because,
        markedBroken,
        httpsRecords,
        ...(heldBackMs !== undefined && { heldBackMs }),
        ...(wonBy !== undefined && { wonBy }),
        ...(decidedAt !== undefined && { decidedAt }),
      };
    });
  }

  #onJob(event: NetLogEvent): void {
    const controllerId = dependencyIn(event);
    const controller = controllerId === undefined ? undefined : this.#controllers.get(controllerId);
    if (controller === undefined) return;
    const quic = event.params.using_quic === true;
    if (quic) controller.because ??= textIn(event, 'type') ?? 'alternative';
    else controller.hasTcp = true;
    this.#jobs.set(event.source, { controller, quic });
  }
}

function httpsProtocols({ params }: NetLogEvent): string[] {
  const found: string[] = [];
  // The answer's records, each of which may contain several services with their protocols.
  JSON.stringify(params.results ?? [], (key, value: unknown) => {
    if (key === 'supported_protocol_alpns' && Array.isArray(value)) {
      found.push(...value.filter((each) => typeof each === 'string'));
    }
    return value;
  });
  return found;
}
