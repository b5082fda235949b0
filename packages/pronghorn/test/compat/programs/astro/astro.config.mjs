import node from '@astrojs/node';

export default {
  output: 'server',
  adapter: node({ mode: 'middleware' }),
  image: { service: { entrypoint: 'astro/assets/services/noop' } },
  // As files, so that they are asked for.
  build: { inlineStylesheets: 'never' },
  vite: { build: { assetsInlineLimit: 0 } },
};
