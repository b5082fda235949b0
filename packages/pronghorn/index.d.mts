import * as pronghorn from './index.js';

export * from './index.js';
export default pronghorn;
