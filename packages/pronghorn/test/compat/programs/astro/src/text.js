export const text = (count) => `count ${count}`;
