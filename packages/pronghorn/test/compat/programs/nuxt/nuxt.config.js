export default defineNuxtConfig({
  compatibilityDate: '2026-11-01',
  srcDir: '.',
  telemetry: false,
  nitro: { preset: 'node-listener' },
});
