# A recipe for Spack: copy this folder to REPO/packages/convoy and run `spack install convoy`.
from spack.package import *


class Convoy(CMakePackage):
    """Trains and runs convolutional networks: a program and a C library."""

    license("Apache-2.0")
    version("main", branch="main")

    variant("mpi", default=False, description="Modules for processes that an MPI has started")
    variant("cuda", default=False, description="The module for NVIDIA's GPUs")

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("onednn@2.6:+cpu_runtime cpu_runtime=omp", when="@main")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("zlib-api")
    depends_on("libwebp")
    depends_on("libheif")
    depends_on("libtiff")
    depends_on("curl")
    depends_on("libmicrohttpd")
    depends_on("cairo")
    depends_on("yajl")
    depends_on("protobuf-c")
    depends_on("onnx", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@13:", when="+cuda")
    depends_on("cudnn@9.8:", when="+cuda")
    depends_on("nccl", when="+cuda")

    def cmake_args(self):
        return [
            self.define("CONVOY_TESTS", False),
            self.define("CONVOY_WERROR", False),
            self.define_from_variant("CONVOY_MPI", "mpi"),
            self.define_from_variant("CONVOY_CUDA", "cuda"),
        ]
