declare module 'chrome-har' {
  /** Makes HAR 1.2 from messages of the developer tools' protocol. */
  export function harFromMessages(
    messages: readonly { readonly method: string; readonly params: object }[],
  ): unknown;
}
