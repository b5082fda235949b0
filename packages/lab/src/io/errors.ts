/** Exit codes of `pronghorn-lab`. They follow sysexits(3) where it has a matching code. */
export const ExitCode = {
  Ok: 0,
  /** A bug in this program. */
  Internal: 1,
  Usage: 2,
  /** The campaign ran, but an arm has no valid, completed load, so there is nothing to compare. */
  NothingToCompare: 3,
  /** The campaign ran, and a condition of `--fail-if` holds. */
  ThresholdBroken: 4,
  /** A plan, a page specification, a link profile, a samples file, a recording or a HAR file is malformed. */
  Malformed: 65,
  /** A named file or folder does not exist or cannot be read. */
  InputMissing: 66,
  /**
   * A required program is missing, a load's link or server does not work on this machine, or a page
   * to capture cannot be loaded or is an error page.
   */
  Unavailable: 69,
  /**
   * The output folder cannot be created or is not empty, or a disk is full or cannot be written.
   */
  CannotCreate: 73,
  /** Another campaign uses the folder or measures on the machine. */
  Busy: 75,
  /** Network namespaces or the TUN device are not permitted. */
  NotPermitted: 77,
  Interrupted: 130,
} as const;

export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

/** An error that the user can fix: what happened, what to do about it, and the exit code. */
export class LabError extends Error {
  override readonly name = 'LabError';

  constructor(
    readonly exitCode: ExitCode,
    message: string,
    /** What to do about it: a clause without a capital letter or full stop. */
    readonly hint?: string,
    /** Output of another program that explains the error, line by line. */
    readonly details: readonly string[] = [],
  ) {
    super(message);
  }

  /** The line that the command prints before the details. */
  line(): string {
    const text = this.hint === undefined ? this.message : `${this.message}; ${this.hint}`;
    return `error: ${text.replace(/\s*\n\s*/g, ' ')}`;
  }
}

/** Returns the message of a thrown value. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Returns the `code` of a system error ("ENOENT"), if it has one. */
export function systemCode(thrown: unknown): string | undefined {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string'
    ? thrown.code
    : undefined;
}
