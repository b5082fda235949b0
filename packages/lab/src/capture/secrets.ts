/** Returns whether a field's value is likely to authenticate the person who captured the page. */
export function isSecret(name: string): boolean {
  return /^(cookie|set-cookie|authorization|proxy-authorization)$|token|secret|api-?key|session/i.test(
    name,
  );
}
