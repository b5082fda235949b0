import eslint from '@eslint/js';

const globals = Object.fromEntries(
  [
    'require',
    'module',
    '__dirname',
    'process',
    'Buffer',
    'console',
    'setImmediate',
    'setTimeout',
    'clearTimeout',
    'queueMicrotask',
    'TextEncoder',
    'TextDecoder',
    'URL',
    'Headers',
    'Response',
    'AbortController',
    'DOMException',
    'ReadableStream',
    'WritableStream',
    'AbortSignal',
    'URLSearchParams',
    'FormData',
    'fetch',
    '__filename',
    'setInterval',
    'clearInterval',
    'Blob',
    'Request',
    'SharedArrayBuffer',
  ].map((name) => [name, 'readonly']),
);

export default [
  { ignores: ['test/types/'] },
  {
    ...eslint.configs.recommended,
    files: ['**/*.js', '**/*.mjs'],
    languageOptions: { ecmaVersion: 2023, sourceType: 'commonjs', globals },
    rules: {
      ...eslint.configs.recommended.rules,
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
    },
  },
  { files: ['**/*.mjs'], languageOptions: { sourceType: 'module' } },
  // Programs of meta-frameworks, which define global names.
  {
    files: ['astro', 'next', 'nuxt', 'react-router', 'sveltekit'].map(
      (name) => `test/compat/programs/${name}/**/*.js`,
    ),
    languageOptions: { sourceType: 'module' },
    rules: { 'no-undef': 'off' },
  },
];
