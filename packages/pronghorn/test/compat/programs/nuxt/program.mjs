import * as built from './.output/server/index.mjs';

export default () => built.middleware ?? built.listener;
